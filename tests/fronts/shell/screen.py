"""A terminal for tests: the real program on a pseudo-terminal, and a screen that one can read.

Nothing here waits for a time to pass: ``until`` looks at the screen whenever the program has
written something, and fails with what is on it after a minute.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte

PATIENCE = 60.0
PROMPT = "privsql>"
TAB, ENTER, UP, CTRL_C, CTRL_D = "\t", "\r", "\x1b[A", "\x03", "\x04"


class _Answering(pyte.HistoryScreen):
    """A screen that answers where its cursor is, as terminals do."""

    reply: Callable[[bytes], object]

    def write_process_input(self, data: str) -> None:
        self.reply(data.encode())


class Terminal:
    """A program on a terminal of its own."""

    def __init__(
        self,
        *command: str | Path,
        cwd: Path,
        rows: int = 40,
        columns: int = 100,
        **environment: str,
    ) -> None:
        self.raw = b""
        self._screen = _Answering(columns, rows, history=2000, ratio=1)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        self._screen.reply = lambda data: os.write(self._master, data)
        self.resize(rows, columns)
        base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            start_new_session=True,
            # Ctrl-C becomes a signal for those whose terminal this is.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**base, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment},
        )
        os.close(slave)

    def resize(self, rows: int, columns: int) -> None:
        """Pull at the corner of the window."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._screen.resize(rows, columns)

    @property
    def lines(self) -> list[str]:
        """What can be seen, and what was scrolled out at the top."""
        gone = [
            "".join(line[x].data for x in range(self._screen.columns))
            for line in self._screen.history.top
        ]
        return [line.rstrip(" ") for line in [*gone, *self._screen.display]]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def until(self, seen: Callable[[str], bool] | str) -> str:
        """Read until a text is on the screen (or a condition on it holds)."""
        holds = seen if callable(seen) else lambda text: seen in text
        end = time.monotonic() + PATIENCE
        while not holds(self.text):
            left = end - time.monotonic()
            assert left > 0, f"not seen: {seen!r}; on the screen:\n{self.text}"
            if not self._read(min(left, 1.0)):
                assert holds(self.text), f"ended before {seen!r} was seen:\n{self.text}"
                break
        return self.text

    def ready(self) -> str:
        """Read until the prompt waits on an empty line; what the program said since the last."""
        return self.until(lambda text: text.endswith(PROMPT))

    def ask(self, text: str) -> str:
        """Type a text and Enter, and return what is below it once the prompt is back."""
        before = self.text.count("\n")
        self.send(text + ENTER)
        self.until(lambda now: now.count("\n") > before and now.endswith(PROMPT))
        return "\n".join(self.lines[before:]).rstrip()

    def clear(self) -> None:
        """Forget what was on the screen."""
        self.send("\x0c")  # Ctrl-L
        self.until(lambda _: "".join(self._screen.display).strip() == PROMPT)
        self._screen.history.top.clear()

    def ended(self) -> int:
        """Read to the end; the exit code."""
        end = time.monotonic() + PATIENCE
        while self._read(1.0):
            assert time.monotonic() < end, f"it does not end:\n{self.text}"
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(PATIENCE)
        os.close(self._master)

    def _read(self, seconds: float) -> bool:
        """Show what the program writes; False when it has ended."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._master, 65536)
        except OSError:  # nobody holds the other end
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)


def privsql(*arguments: str | Path) -> list[str | Path]:
    """The command as a user runs it."""
    return [sys.executable, "-m", "privsql.fronts.cli.main", *arguments]

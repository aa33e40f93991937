"""Pages that start a server: what they say is typed in terminals, beside the server."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import programs

PASSWORD = "open sesame"
# Runs a command in a terminal of its own, and types a password where one is asked for.
TERMINAL = """
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
seen = b""
try:
    while part := os.read(terminal, 1000):
        seen += part
        if seen.endswith(b": "):
            os.write(terminal, sys.argv[1].encode() + b"\\n")
except OSError:
    pass  # how a terminal ends
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@dataclass
class Followed:
    """A folder where the commands of a page were typed, and servers that they started."""

    folder: Path
    ports: dict[str, str] = field(default_factory=dict)  # of the page -> free ones

    @property
    def environment(self) -> dict[str, str]:
        """Where `privsql` is found, and what is not to be asked for or changed."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "XDG_STATE_HOME": str(self.folder), "PGPASSWORD": PASSWORD}
        return {**os.environ, **own, "PSQLRC": os.devnull, "PGOPTIONS": "", "NO_COLOR": "1"}

    def here(self, text: str) -> str:
        """What a page says, with the ports and the password of this test."""
        for theirs, ours in self.ports.items():
            text = text.replace(theirs, ours)
        return text.replace("PASSWORD", PASSWORD.replace(" ", "%20"))

    def typed(self, line: str, *, refused: bool = False) -> str:
        """Run a line of a page in a shell; it must succeed, or be refused where that is shown."""
        asks = line.startswith("privsql user add") and "--password-stdin" not in line
        if asks:
            line = shlex.join([sys.executable, "-c", TERMINAL, PASSWORD, *shlex.split(line)])
        done = programs.typed(self.here(line), cwd=self.folder, env=self.environment)
        assert done.returncode == (1 if refused else 0), (line, done.stdout, done.stderr)
        return done.stdout + (done.stderr if refused else "")

    @contextmanager
    def serving(self, line: str) -> Iterator[None]:
        """Start the server of a line, and stop it as the page says."""
        (theirs,) = re.findall(r":(\d+)\b", line)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.ports[theirs] = str(free.getsockname()[1])
        process = subprocess.Popen(
            shlex.split(self.here(line)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )
        banner = process.stdout.readline()
        try:
            assert self.ports[theirs] in banner, process.stderr.read()
            yield
        finally:
            process.terminate()
            _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said

    def follow(self, lines: list[str], running: ExitStack) -> None:
        for line in lines:
            if line.startswith("privsql serve "):
                running.enter_context(self.serving(line))
            else:
                self.typed(line)


def needed(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")

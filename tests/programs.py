"""Programs that pages and tests start, forked from one that has imported everything already.

A program of ours takes most of a second to import what it needs, and the documents alone start a
hundred.  So a process that has imported it forks for each of them; what a program prints and
returns is the same.  ``make soak`` starts each one anew, as a person does.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.sizes import SOAK

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(
    [
        "tests.programs",
        "privsql.fronts.cli.main",
        *(f"privsql.fronts.cli.commands.{name}" for name in ("audit", "publish", "query")),
        *("privsql.publish.job", "privsql.audit.job", "privsql.fronts.dbapi"),
        *("pandas", "rich.console", "sqlglot.dialects.postgres"),
    ]
)
# Waited for, so that its time counts as that of the tests.
atexit.register(forkserver._forkserver._stop)

# A line that needs no shell: words, and quotes that hold no variable.
PLAIN = re.compile(r"""privsql(?: +(?:[\w./:=,@%+-]+|'[^']*'|"[^"$`\\]*"))+ *""")

Done = subprocess.CompletedProcess[str]


def typed(line: str, *, cwd: Path, env: Mapping[str, str], timeout: float = 300) -> Done:
    """Type a line in a shell; one that is a command of ours alone needs none."""
    if not SOAK and PLAIN.fullmatch(line):
        return command(shlex.split(line)[1:], cwd=cwd, env=env, timeout=timeout)
    return _started(["bash", "-c", line], cwd, env, timeout)


def command(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float = 300
) -> Done:
    """Run ``privsql`` with these words, without a terminal."""
    if SOAK:
        program = [sys.executable, "-m", "privsql.fronts.cli.main"]
        return _started([*program, *words], cwd, env, timeout)
    return _forked(["privsql", *words], "", cwd, env, timeout)


def python(code: str, *, cwd: Path, env: Mapping[str, str], timeout: float = 300) -> Done:
    """Run a program in Python; its warnings are errors."""
    if SOAK:
        return _started([sys.executable, "-W", "error", "-c", code], cwd, env, timeout)
    return _forked(["-c"], code, cwd, env, timeout)


def _started(words: list[str], cwd: Path, env: Mapping[str, str], timeout: float) -> Done:
    own = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(words, cwd=cwd, env=dict(env), timeout=timeout, **own)


def _forked(words: list[str], code: str, cwd: Path, env: Mapping[str, str], timeout: float) -> Done:
    with tempfile.TemporaryDirectory() as folder:
        streams = [os.devnull, f"{folder}/out", f"{folder}/err"]
        child = _begun(words, code, cwd, env, streams)
        child.join(timeout)
        if child.exitcode is None:
            child.kill()
            child.join()
            raise subprocess.TimeoutExpired(words, timeout)
        out, err = (Path(name).read_text("utf-8") for name in streams[1:])
        return Done(words, child.exitcode, out, err)


def on_terminal(
    words: Sequence[str], terminal: int, *, cwd: Path, env: Mapping[str, str], given: Path
) -> None:
    """Run ``privsql`` with both of its streams on a terminal and a file on standard input."""
    name = os.ttyname(terminal)
    _begun(["privsql", *words], "", cwd, env, [str(given), name, name]).join(120)


def _begun(
    words: list[str], code: str, cwd: Path, env: Mapping[str, str], streams: list[str]
) -> BaseProcess:
    child = _FORKING.Process(target=_run, args=(words, code, str(cwd), dict(env), streams))
    child.start()
    return child


def _run(
    words: list[str], code: str, folder: str, environment: dict[str, str], streams: list[str]
) -> None:
    """Be that program, in the forked process."""
    for number, name in enumerate(streams):
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOCTTY, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)
        for number in range(3)
    )
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = words
    if not code:
        from privsql.fronts.cli.main import main

        main(prog_name="privsql")
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    warnings.simplefilter("error")
    exec(compile(code, "<string>", "exec"), module.__dict__)

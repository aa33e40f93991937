"""Mutants in processes that share everything but our own code.

Starting an interpreter, DuckDB, Arrow, scipy and pytest costs more than asking a mutant thirty
questions.  So one process imports them, and none of ours, and forks for each mutant; the child
imports our code with one module changed.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from tests.mutants.modules import ROOT, files_of, kernels_of
from tests.mutants.sites import Mutant

SECONDS = 150  # of processor time for one mutant; more is a loop that does not end
WALL = 1800
MEMORY = 16 << 30  # reserved, stacks of threads included; what is used is far less
OURS = ("privsql", "udfs")
# Not hypothesis: pytest rewrites its plug-ins' assertions as it imports them.
WARM = (
    "duckdb", "numpy", "pandas", "pyarrow", "pyarrow.parquet", "pyarrow.compute", "pytest",
    "sqlglot", "sqlglot.optimizer", "scipy.special", "scipy.optimize", "scipy.linalg",
    "scipy.sparse", "scipy.stats", "sqlite3", "statistics", "asyncio", "unittest.mock",
)  # fmt: skip


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: the stage that ended it, or none."""

    mutant: str
    stage: str  # "" for a survivor
    by: str
    seconds: float

    @property
    def killed(self) -> bool:
        return bool(self.stage)


class Changed(importlib.abc.MetaPathFinder):
    """Finds one module, and gives it other code."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.code = compile(mutant.source(), mutant.path, "exec", dont_inherit=True)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.mutant.module:
            return None
        loader = _Loader(name, self.mutant.path, self.code)
        return importlib.util.spec_from_file_location(name, self.mutant.path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._changed = code

    def get_code(self, fullname: str) -> CodeType:
        return self._changed


def warm() -> None:
    """Import what is not ours, as far as it is installed."""
    for name in WARM:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    ours = [name for name in sys.modules if name.split(".")[0] in OURS]
    if ours:
        raise AssertionError(f"imported before a mutant could be: {ours[:5]}")


def through(mutant: Mutant | None, folder: Path, files: Sequence[str] = ()) -> tuple[str, str]:
    """Run the battery in this process: the stage that failed and why, or two empty texts."""
    from tests.mutants import battery

    stage = "import"
    try:
        if mutant is not None:
            sys.meta_path.insert(0, Changed(mutant))
            importlib.import_module(mutant.module)
        stages: list[tuple[str, Callable[[], str]]] = [("numbers", lambda: battery.numbers(folder))]
        if mutant is not None and mutant.module.startswith("udfs."):
            # A kernel's own tests are quicker than questions; those of the others come after.
            own, *others = kernels_of(mutant.module)
            stages.insert(0, ("kernels", lambda: battery.tests([own], ROOT)))
            stages.append(("kernels", lambda: battery.tests(others, ROOT)))
        stages.append(("oracle", lambda: battery.oracle(folder)))
        wanted = files or (files_of(mutant.module) if mutant is not None else ())
        if wanted:
            stages.append(("tests", lambda: battery.tests(wanted, ROOT)))
        for stage, run in stages:
            wrong = run()
            if wrong:
                return stage, wrong
    except BaseException as problem:  # whatever a mutant raises is the end of it
        last = traceback.extract_tb(problem.__traceback__)[-1]
        return stage, f"{type(problem).__name__}: {problem} ({Path(last.filename).name})"[:300]
    return "", ""


class Child:
    """A forked process that runs a function and leaves its result in a file."""

    def __init__(self, work: Callable[[], object], out: Path, seconds: int = SECONDS) -> None:
        self.out, self.started = out, time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _quietly(work, out, seconds)

    def result(self) -> object:
        return pickle.loads(self.out.read_bytes()) if self.out.exists() else None


def _quietly(work: Callable[[], object], out: Path, seconds: int) -> None:
    """The child: a limit on everything, nothing on the terminal, and no way back."""
    code = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        with tempfile.TemporaryDirectory() as own:
            os.environ["TMPDIR"] = own
            tempfile.tempdir = own
            found = work()
            out.with_suffix(".part").write_bytes(pickle.dumps(found))
            out.with_suffix(".part").rename(out)
        code = 0
    except BaseException:
        out.with_suffix(".error").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(code)


def wait(children: dict[int, Child]) -> tuple[Child, float, int]:
    """The next child that ends, its processor seconds, and how it ended."""
    while True:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if pid in children:
            return children.pop(pid), used.ru_utime + used.ru_stime, status
        now = time.monotonic()
        for each in children.values():
            if now - each.started > WALL:
                _end(each.pid)
        time.sleep(0.05)


def _end(pid: int) -> None:
    """End a child that we started, and what it started."""
    for stop in (os.killpg, os.kill):
        try:
            stop(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def done(work: Callable[[], object], folder: Path, name: str) -> object:
    """Run something of ours in a child of its own, and wait."""
    child = Child(work, folder / f"{name}.out", seconds=10 * SECONDS)
    _, _, status = wait({child.pid: child})
    if status:
        wrong = child.out.with_suffix(".error")
        reason = wrong.read_text(encoding="utf-8") if wrong.exists() else ""
        raise RuntimeError(f"{name} ended with {status}: {reason}")
    return child.result()


def run(
    chosen: Sequence[Mutant], folder: Path, jobs: int, tell: Callable[[Mutant, Fate], None]
) -> list[Fate]:
    """Send every mutant through, so many at a time."""
    left, fates = list(reversed(chosen)), []
    children: dict[int, Child] = {}
    owners: dict[int, Mutant] = {}
    while left or children:
        while left and len(children) < jobs:
            mutant = left.pop()

            def work(mutant: Mutant = mutant) -> object:
                return through(mutant, folder)

            child = Child(work, folder / f"{len(left)}.out")
            children[child.pid], owners[child.pid] = child, mutant
        child, seconds, status = wait(children)
        mutant = owners.pop(child.pid)
        stage, by = child.result() or ("died", f"signal {status & 127}")  # type: ignore[misc]
        if status & 127 in (signal.SIGXCPU, signal.SIGKILL):
            stage, by = "time", f"after {seconds:.0f} s"
        fate = Fate(mutant.name, stage, by, seconds)
        fates.append(fate)
        tell(mutant, fate)
    return fates

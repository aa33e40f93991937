"""Runs every driver against privsql and PostgreSQL 15, and prints where they differ.

    python -m tests.fronts.pgwire.clients.matrix [--folder FOLDER] [--markdown] [driver ...]

Each driver has a program in ``checks`` that prints a JSON line for every check: a value, or an
error.  A check passes on PostgreSQL when it gives a value, and on privsql when it gives the same
value; an estimate need only be near.  A driver that could not be installed is a row with its
error.  The exit code is 1 if a check fails on either server, and 0 otherwise.  Packages of Python
and Node go into ``--folder`` (default: a temporary one); Debian packages are installed where root
runs this.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fronts.pgwire.clients.drivers import DRIVERS, Driver
from tests.fronts.pgwire.clients.servers import address, postgresql, released

CHECKS = Path(__file__).with_name("checks")
# Known in advance: guards against a program that finds nothing on both servers.
EXPECTED = {"select": ("north", "2000", "south", "1000"), "in": ("858",), "errors": ("42703",)}
ABOUT = 0.35  # an estimate's distance from the count, as a share of it: 4.4 standard errors


class InstallationError(Exception):
    """A driver that could not be installed."""


@dataclass(frozen=True)
class Outcome:
    """What the checks of a driver gave on one server."""

    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    version: str = ""
    missing: str = ""  # what a driver would fetch when it is first used, and could not


@dataclass(frozen=True)
class Row:
    """A row of the table: counts of checks, those that differ, or why there are none."""

    driver: str
    version: str = ""
    checks: int = 0
    reference: int = 0  # passed on PostgreSQL
    ours: int = 0  # passed on privsql
    differing: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    missing: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.differing)


def outcome(text: str, ended: str = "") -> Outcome:
    """Reads what a program printed; ``ended`` says how it ended, if not well.

    >>> outcome('{"version": "1"}\\n{"check": "a", "value": 3}\\n{"check": "b", "error": "E"}')
    Outcome(values={'a': 3}, errors={'b': 'E'}, version='1', missing='')
    """
    values, errors, version, missing = {}, {}, "", ""
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue  # drivers print lines of their own
        if not isinstance(said, dict):
            continue
        version = said.get("version", version)
        missing = said.get("missing", missing)
        if "value" in said:
            values[said["check"]] = said["value"]
        elif "error" in said:
            errors[said["check"]] = said["error"]
    if ended:
        errors["program"] = ended
    return Outcome(values, errors, version, missing)


def equal(check: str, reference: Any, ours: Any) -> bool:
    """Whether privsql's answer passes for PostgreSQL's.

    >>> equal("in", 3, 3), equal("in", 3, 4), equal("estimate", 600, 511.9), equal("estimate", 1, 9)
    (True, False, True, False)
    """
    if not check.startswith("estimate"):
        return bool(reference == ours)
    try:
        return abs(float(ours) - float(reference)) <= ABOUT * float(reference)
    except (TypeError, ValueError):
        return False


def compared(driver: str, reference: Outcome, ours: Outcome) -> Row:
    """A row of the table from what a driver's checks gave on both servers.

    >>> one, other = Outcome({"a": 1, "b": 2}, {}, "1"), Outcome({"a": 1}, {"b": "no"}, "1")
    >>> row = compared("x", one, other)
    >>> row.reference, row.ours, row.differing, row.details
    (2, 1, ('b',), ('b: PostgreSQL 2, privsql no',))
    """
    if reference.missing:
        return Row(driver, reference.version, missing=reference.missing)
    names = [*reference.values, *reference.errors]
    names += [name for name in (*ours.values, *ours.errors) if name not in names]
    if not names:
        return Row(driver, differing=("nothing was checked",))
    broken = {name for name in names if name not in reference.values}
    for name, parts in EXPECTED.items():
        said = json.dumps(reference.values.get(name, list(parts)))
        if any(part not in said for part in parts):
            broken.add(name)
    passed = {
        name
        for name, value in ours.values.items()
        if name in reference.values and equal(name, reference.values[name], value)
    }
    differing = [name for name in names if name in broken or name not in passed]
    details = [
        f"{name}: PostgreSQL {_told(reference, name)}, privsql {_told(ours, name)}"
        for name in differing
    ]
    return Row(
        driver, reference.version or ours.version, len(names),
        len(names) - len(broken), len(passed), tuple(differing), tuple(details),
    )  # fmt: skip


def _told(side: Outcome, name: str) -> str:
    if name in side.values:
        return json.dumps(side.values[name], ensure_ascii=False)
    return side.errors.get(name, "says nothing")


class Scratch:
    """Where drivers are installed, and how their programs are started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One process at a time installs."""
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def command(self, driver: Driver) -> tuple[list[str], dict[str, str], Path]:
        """The command of a driver's checks, variables for it and its folder; installs first."""
        with self.alone():
            self._debian(driver)
            if driver.pip:
                self._python(driver)
            if driver.npm:
                self._node(driver)
            return self._started(driver)

    def _started(self, driver: Driver) -> tuple[list[str], dict[str, str], Path]:
        program = str(CHECKS / driver.program)
        if driver.runner in ("python", "dbt", "prisma"):
            home = self.folder / driver.runner
            python = str(home / "bin" / "python") if driver.pip else sys.executable
            return [python, program], {"CHECKS_HOME": str(home)}, CHECKS
        if driver.runner == "node":
            return (
                ["node", program],
                {"NODE_PATH": str(self.folder / "node" / "node_modules")},
                CHECKS,
            )
        if driver.runner == "java":
            return self._java(driver, program), {}, CHECKS
        if driver.runner == "go":
            return self._go(driver, program), {}, self._home("go")
        return [driver.runner, program], {}, CHECKS

    def _home(self, name: str) -> Path:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        return home

    def _debian(self, driver: Driver) -> None:
        absent = [need for need in driver.needs if not Path(need).exists()]
        if not absent:
            return
        if os.getuid() == 0:
            wanted = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *driver.apt]
            _done(wanted, DEBIAN_FRONTEND="noninteractive")
        absent = [need for need in driver.needs if not Path(need).exists()]
        if absent:
            raise InstallationError(f"{absent[0]} is missing: install {' '.join(driver.apt)}")

    def _python(self, driver: Driver) -> None:
        home = self.folder / driver.runner
        if not (home / "bin" / "python").exists():
            _done([sys.executable, "-m", "venv", str(home)])
        self._once(
            driver, [str(home / "bin" / "python"), "-m", "pip", "install", "-q", *driver.pip]
        )

    def _node(self, driver: Driver) -> None:
        home = self._home(driver.runner)
        self._once(
            driver,
            ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(home), *driver.npm],
        )

    def _once(self, driver: Driver, command: list[str]) -> None:
        mark = self._home("installed") / re.sub(r"\W+", "-", driver.name)
        if not mark.exists():
            _done(command)
            mark.touch()

    def _java(self, driver: Driver, program: str) -> list[str]:
        home, jar = self._home("java"), driver.needs[0]
        _done(["javac", "-cp", jar, "-d", str(home), program])
        return ["java", "-Xshare:auto", "-cp", f"{home}:{jar}", Path(program).stem]

    def _go(self, driver: Driver, program: str) -> list[str]:
        home = self._home("go")
        built = home / Path(program).stem
        variables = {
            "GO111MODULE": "off",
            "GOPATH": "/usr/share/gocode",
            "GOCACHE": str(home / "cache"),
        }
        _done(["go", "build", "-o", str(built), program], **variables)
        asked = ["dpkg-query", "-W", "-f", "${Version}", driver.apt[-1]]
        (home / "version").write_text(subprocess.run(asked, capture_output=True, text=True).stdout)
        return [str(built)]


def _done(command: list[str], **variables: str) -> None:
    try:
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=900
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise InstallationError(f"{command[0]}: {problem}") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line and "WARNING" not in line]
        raise InstallationError(f"{Path(command[0]).name}: {' '.join(said)[-300:]}")


def ran(command: list[str], folder: Path, variables: dict[str, str]) -> Outcome:
    """What a program's checks give on one server."""
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **variables},
            capture_output=True, timeout=400,
        )  # fmt: skip
    except subprocess.TimeoutExpired as problem:
        return outcome(
            (problem.stdout or b"").decode(errors="replace"), "did not end in 400 seconds"
        )
    said = done.stderr.decode(errors="replace").strip()
    ended = f"exit code {done.returncode}: {said[-300:]}" if done.returncode else ""
    return outcome(done.stdout.decode(errors="replace"), ended)


def rows(chosen: Sequence[Driver], folder: Path) -> Iterator[Row]:
    """The table, row by row."""
    scratch = Scratch(folder)
    with tempfile.TemporaryDirectory() as work, ExitStack() as servers:
        homes = [Path(work) / name for name in ("reference", "ours")]
        for home in homes:
            home.mkdir()
        ports = [
            servers.enter_context(postgresql(homes[0])),
            servers.enter_context(released(homes[1])),
        ]
        for driver in chosen:
            try:
                command, variables, place = scratch.command(driver)
            except InstallationError as problem:
                yield Row(driver.name, missing=str(problem))
                continue
            sides = [ran(command, place, {**variables, **address(port)}) for port in ports]
            yield compared(driver.name, *sides)


def cells(row: Row) -> tuple[str, ...]:
    """A row as text: name, version, passed on PostgreSQL and on privsql, and what differs."""
    if row.missing:
        said = re.sub(r"https?://\S+", "an address", " ".join(row.missing.split()))
        return (row.driver, f"{row.version} not installed".strip(), "-", "-", said)
    counts = [f"{count}/{row.checks}" for count in (row.reference, row.ours)]
    return (row.driver, row.version, *counts, ", ".join(row.differing) or "nothing")


def laid(parts: Sequence[str], red: bool = False) -> str:
    """A line of the table on a terminal."""
    padded = [part.ljust(width) for part, width in zip(parts, (20, 26, 10, 8, 0), strict=True)]
    text = "  ".join(padded).rstrip()
    return f"\033[31m{text}\033[0m" if red else text


def markdown(parts: Sequence[str]) -> str:
    """A line of the table on a page."""
    return f"| {' | '.join(part.replace('|', '/') for part in parts)} |"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fronts.pgwire.clients.matrix")
    parser.add_argument("drivers", nargs="*", help="names, or parts of them; all without")
    parser.add_argument("--folder", type=Path, help="where drivers are installed, and kept")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/drivers.md")
    given = parser.parse_args(words)
    chosen = [
        driver
        for driver in DRIVERS
        if not given.drivers or any(part.lower() in driver.name.lower() for part in given.drivers)
    ]
    if not chosen:
        parser.error(f"no such driver; there are {', '.join(driver.name for driver in DRIVERS)}")
    failed = False
    if given.markdown:
        print("| driver | version | PostgreSQL 15 | privsql | differs |\n|---|---|---|---|---|")
    else:
        print(laid(("driver", "version", "PostgreSQL", "privsql", "differs")))
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows(chosen, (given.folder or Path(scratch)).absolute()):
            failed |= row.failed
            red = sys.stdout.isatty() and (row.failed or bool(row.missing))
            print(markdown(cells(row)) if given.markdown else laid(cells(row), red), flush=True)
            for detail in row.details:
                print(f"    {detail[:1000]}", file=sys.stderr, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The served releases, each version under its own path, and their sessions.

    release.duckdb ── link ──> <folder>/0-release.duckdb
                   ── link ──> <folder>/1-release.duckdb     published again: a new file

DuckDB goes on serving the old file to everyone who opens a path while anybody has it open, so
versions are told apart by path.  A link costs nothing; where there can be none the file is
copied.  A version that was replaced is closed when the last answer from it has ended.

A session takes tenths of a second to open and answers one statement at a time, as one user.  So
they are pooled by version and user, there are as many as may work at once, and a connection that
is idle holds none.  The databases of each are in a process of its own, within a limit of memory
(``engines.processes.child``); when that process ends, so does its session.  What was answered is
remembered for all sessions of a user.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from privsql import files
from privsql.answer.outcome import Outcome
from privsql.engines.processes.child import Child
from privsql.engines.processes.confined import Confined
from privsql.engines.processes.footprint import trim
from privsql.errors import Error, IntegrityError, OperationalError, ProgrammingError, printable
from privsql.policy.history import History
from privsql.policy.journal import Entry, Journal
from privsql.policy.limits import GIGABYTE, Limits
from privsql.release.folder import link_folder, stamp
from privsql.release.manifest import Manifest
from privsql.release.store import Release, open_release
from privsql.session.caches import Answers, key_of
from privsql.session.gate import Served
from privsql.session.log import logged
from privsql.session.session import Session
from privsql.session.settings import Settings
from privsql.sql.postgres.read import read

PREFIX = "privsql-served-"
ATTEMPTS = 5
TRIMMED = 10.0  # seconds between two times that freed memory is given back
RESTED = 60.0  # seconds after which a session that nobody uses is closed: it has 50 MB
log = logging.getLogger("privsql.pgwire")


@dataclass(eq=False)
class Version:
    """One file of a release, under a path that nothing else has."""

    name: str
    number: int
    path: Path
    manifest: Manifest
    stamp: tuple[int, int, int]
    sessions: int = 0  # that exist, idle or not
    retired: bool = False

    @property
    def columns(self) -> dict[str, str]:
        """DuckDB's type of each column that may be named, in lower case."""
        found = {column.name.lower(): column.type for column in self.manifest.public}
        return found | {column.name.lower(): column.type for column in self.manifest.sensitive}


class Seat(NamedTuple):
    """A session of one version for one user, and when it was given back."""

    version: Version
    user: str
    session: Session
    since: float = 0.0


class House:
    """The releases of a server.  Safe among threads; every call may take a while.

    ``sessions`` is how many may exist at once, half of them idle; ``folder`` is where versions
    are linked.  ``always`` are statements that no user is ever refused, beside those of each
    release's policy.  ``quick`` lets the event loop itself give answers that were given before;
    it then writes the journal's line too, so it is not for a journal that waits for the disk.
    ``admit`` refuses users whose accounts are closed.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        history: History | None = None,
        journal: Journal | None = None,
        limits: Limits | None = None,
        sessions: int = 8,
        folder: str | os.PathLike[str] | None = None,
        quick: bool = True,
        always: Sequence[str] = (),
        admit: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.quick, self._admit = quick, admit
        self._always = tuple(always)
        if not paths:
            raise ProgrammingError("there is no release to serve", hint="name at least one file")
        self._history, self._journal = history, journal
        self.limits = limits or Limits()
        self._most = max(1, sessions)
        self._folders = Folders(folder)
        self._turn = threading.Condition()
        self._looking = threading.Lock()
        self._count = 0
        self._live = 0
        self._idle: list[Seat] = []  # the last one was used last
        self._closed = False
        self._paths: dict[str, Path] = {}
        self._current: dict[str, Version] = {}
        self._failed: dict[str, tuple[int, int, int]] = {}
        self._answers = Answers()
        self._trimmed = time.monotonic()
        try:
            for each in paths:
                self._add(Path(each).absolute())
            self._check_always()
        except BaseException:
            self._folders.close()
            raise

    def _add(self, path: Path) -> None:
        version = self._opened(path)
        if version.name.lower() in {name.lower() for name in self._paths}:
            raise ProgrammingError(
                f"two releases are called {version.name}",
                hint="serve them apart, or publish one under another name",
            )
        self._paths[version.name] = path
        self._current[version.name] = version

    # -- versions ------------------------------------------------------------------------

    def versions(self, may: Callable[[str], bool] = lambda _: True) -> Mapping[str, Version]:
        """The present version of each release that somebody may see."""
        with self._turn:
            return {name: version for name, version in self._current.items() if may(name)}

    def refresh(self) -> list[str]:
        """Look whether a release was published again; the names of those that were."""
        found = []
        with self._looking:
            for name, path in self._paths.items():
                with suppress(OSError):  # being replaced at this moment, or gone: keep the old
                    now = stamp(path)
                    known = now in (self._current[name].stamp, self._failed.get(name))
                    if not known and self._renew(name, path, now):
                        found.append(name)
        return found

    def _renew(self, name: str, path: Path, now: tuple[int, int, int]) -> bool:
        shown = printable(name)
        try:
            version = self._opened(path)
        except Error as problem:
            # Whoever asks goes on with the version that there was.
            log.warning(
                "%s was published again but cannot be served: %s", shown, printable(problem.reason)
            )
            self._failed[name] = now
            return False
        if version.name != name:
            self._folders.remove(version.path)
            log.warning("the file of %s now holds another table: not served", shown)
            self._failed[name] = now
            return False
        with self._turn:
            old, self._current[name] = self._current[name], version
            old.retired = True
            dropped = [seat for seat in self._idle if seat.version is old]
            self._idle = [seat for seat in self._idle if seat.version is not old]
        for seat in dropped:
            self._end(seat)
        if not dropped:
            self._tidy(old)
        self._answers.forget(old.number)
        log.info("%s was published again and is served", shown)
        return True

    def _opened(self, path: Path) -> Version:
        """Link a file and look whether it is a whole release."""
        for _ in range(ATTEMPTS):
            try:
                before = stamp(path)
                with self._turn:
                    number, self._count = self._count, self._count + 1
                link = self._folders.link(path, f"{number}-{path.name}")
            except OSError as problem:
                raise _unread(path, problem) from None
            try:
                release = opened(link)
            except BaseException:
                self._folders.remove(link)
                raise
            if stamp(path) == before:
                made = Version(release.manifest.table, number, link, release.manifest, before)
                try:
                    self._reserve(made)
                except BaseException:
                    self._folders.remove(link)
                    raise
                return made
            self._folders.remove(link)  # replaced meanwhile
        raise IntegrityError(f"{path.name} keeps changing")

    # -- reserved statements -------------------------------------------------------------

    def _reserve(self, version: Version) -> None:
        """Put statements that are always answered into every account of a release."""
        if self._history is None:
            return
        known = {version.name.lower(): version.columns}
        mine = list(version.manifest.policy.always)
        mine += [text for text in self._always if _about(text) == {version.name.lower()}]
        if not mine:
            self._history.give_up(version.name)
            return
        session = Session(version.path, served=Served("", self._history), limits=self.limits)
        try:
            session.reserve({text: each.text for text in mine for each in read(text, known)})
        finally:
            session.close()

    def _check_always(self) -> None:
        """Refuse a reserved statement that is about no release, or about several."""
        served = {name.lower() for name in self._paths}
        for text in self._always:
            found = _about(text)
            if len(found & served) != 1 or len(found) != 1:
                raise ProgrammingError(
                    f"a reserved statement is not about one release that is served: {text}",
                    hint=f"the tables are {', '.join(self._paths)}",
                )

    # -- sessions ------------------------------------------------------------------------

    @contextmanager
    def lease(self, version: Version, user: str) -> Iterator[Session]:
        """A session of a version for one statement of a user."""
        self._admit(user)
        seat = self._take(version, user)
        try:
            yield seat.session
        finally:
            self._give(seat)

    def recalled(
        self,
        version: Version,
        user: str,
        sql: str,
        parameters: Sequence[object] | None,
        options: Mapping[str, object],
        said: str,
    ) -> Outcome | None:
        """An answer that was given to this user before, logged; None where there is none."""
        key = key_of(sql, parameters, options, Settings())
        known = self._answers.of(user, version.number).get(key)
        if known is None:
            return None
        served = Served(user, self._history, self._journal)
        with logged(served, said, version.manifest.table, known[1]) as told:
            return told(known[0])

    def _free(self, version: Version, user: str) -> Seat | None:
        """The idle session of a user that was used last."""
        for at in reversed(range(len(self._idle))):
            if self._idle[at][:2] == (version, user):
                return self._idle.pop(at)
        return None

    def _take(self, version: Version, user: str) -> Seat:
        while True:
            victim: Seat | None = None
            with self._turn:
                if self._closed:
                    raise OperationalError("the server is shutting down")
                if version.retired:
                    version = self._current[version.name]
                if (seat := self._free(version, user)) is not None:
                    return seat
                if self._live < self._most:
                    self._live += 1
                    version.sessions += 1
                    break
                if self._idle:
                    victim = self._idle.pop(0)
                else:
                    self._turn.wait(1.0)
            if victim is not None:
                self._end(victim)
        try:
            served = Served(user, self._history, self._journal)
            return Seat(version, user, self._session(version, served))
        except BaseException:
            self._left(version)
            raise

    def _session(self, version: Version, served: Served) -> Session:
        engines = Confined()
        try:
            return Session(
                version.path,
                served=served,
                limits=self.limits,
                engines=engines,
                remembered=lambda: self._answers.of(served.user, version.number),
            )
        except BaseException:
            engines.close()
            raise

    def _give(self, seat: Seat) -> None:
        ended = [seat]
        with self._turn:
            if not (seat.version.retired or self._closed or seat.session.broken):
                self._idle.append(seat._replace(since=time.monotonic()))
                kept = max(1, self._most // 2)  # more are for moments of crowding
                ended, self._idle = self._idle[:-kept], self._idle[-kept:]
                self._turn.notify()
        for each in ended:
            self._end(each)

    def tidy(self) -> None:
        """Close sessions that nobody has used for a while, and give freed memory back."""
        now = time.monotonic()
        if now > self._trimmed + TRIMMED:
            self._trimmed = now
            trim()
        late = now - RESTED
        with self._turn:
            ended = [seat for seat in self._idle if seat.since < late]
            self._idle = [seat for seat in self._idle if seat.since >= late]
        for seat in ended:
            self._end(seat)

    def _end(self, seat: Seat) -> None:
        try:
            seat.session.close()
        finally:
            self._left(seat.version)

    def _left(self, version: Version) -> None:
        with self._turn:
            self._live -= 1
            version.sessions -= 1
            self._turn.notify()
        self._tidy(version)

    def _tidy(self, version: Version) -> None:
        with self._turn:
            over = version.retired and version.sessions == 0
        if over:
            self._folders.remove(version.path)

    def note(
        self,
        user: str,
        text: str,
        decision: str,
        reason: str = "",
        tables: Sequence[str] = (),
        address: str = "",
    ) -> None:
        """Write what became of a statement that no session was asked, or of a login."""
        if self._journal is not None:
            entry = Entry(user, text, decision, reason, tuple(tables), address=address)
            self._journal.append(entry)

    def close(self) -> None:
        """Close the idle sessions; those that work are closed when they have ended."""
        with self._turn:
            self._closed = True
            idle, self._idle = self._idle, []
            self._turn.notify_all()
        for seat in idle:
            self._end(seat)
        self._folders.close()


def opened(path: Path) -> Release:
    """A release that was looked through, in a process of its own: it may be anybody's file."""
    child = Child(GIGABYTE)
    try:
        return child.run(open_release, path)
    finally:
        child.close()


class Folders:
    """Private folders for links to releases, on the file systems of those."""

    def __init__(self, first: str | os.PathLike[str] | None = None) -> None:
        self._first = Path(first) if first is not None else Path(tempfile.gettempdir())
        self._made: dict[Path, tuple[Path, int]] = {}

    def link(self, path: Path, name: str) -> Path:
        """A path of its own for a file: a link where there can be one, else a copy.

        A copy is made in pieces and takes as much room as the release, wherever there is room
        for it; what was begun and failed is removed.
        """
        for parent in (self._first, path.parent):
            with suppress(OSError):  # another file system, or no right to write there
                made = self._in(parent) / name
                if path.is_dir():
                    link_folder(path, made)
                else:
                    os.link(path, made)
                return made
        problems = []
        for parent in (self._first, path.parent):
            try:
                return self._copied(path, parent, name)
            except OSError as problem:
                problems.append(problem)
        raise problems[0]

    def _copied(self, path: Path, parent: Path, name: str) -> Path:
        made = self._in(parent) / name
        try:
            if path.is_dir():
                link_folder(path, made, copied=True)
            else:
                shutil.copyfile(path, made)
        except BaseException:
            self.remove(made)
            raise
        return made

    def _in(self, parent: Path) -> Path:
        if parent not in self._made:
            _clear(parent)
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            files.lock(lock)
            self._made[parent] = folder, lock
        return self._made[parent][0]

    @staticmethod
    def remove(path: Path) -> None:
        """Let go of one link."""
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            return
        with suppress(OSError):
            path.unlink()

    def close(self) -> None:
        """Remove the folders."""
        for folder, lock in self._made.values():
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
        self._made.clear()


def _clear(parent: Path) -> None:
    """Remove folders that a server left when it was killed: nobody holds their lock."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
            try:
                files.lock(lock)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _unread(path: Path, problem: OSError) -> OperationalError:
    if problem.errno not in files.NO_ROOM:
        return OperationalError(f"{path.name} cannot be read")
    return OperationalError(
        f"there is no room for a copy of {path.name}",
        hint="a release is copied where it cannot be linked: keep it where the server may write,"
        " or set TMPDIR to a folder beside it",
    )


def _about(text: str) -> set[str]:
    """The tables of a statement."""
    return {name.lower() for command in read(text, {}) for name in command.tables}

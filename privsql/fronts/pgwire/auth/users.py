"""The users file: salted verifiers, and the releases each user may query.

    {"version": 1, "secret": "...",
     "users": {"ann": {"verifier": "SCRAM-SHA-256$...", "releases": ["*"]}}}

No password is in it, and none can be computed from it other than by guessing.  The secret makes
the verifiers of users who do not exist: with one that changed at each start, a salt that
changes would tell that there is no such user.  The file is for its owner alone (mode 0600) and
is replaced as a whole, so a reader sees the old one or the new one.  A server looks at it at
each login: who is added can log in, who is removed cannot.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privsql.errors import DataError, OperationalError
from privsql.files import lock, written
from privsql.fronts.pgwire.auth.scram import Verifier, mock, verifier
from privsql.release.formats import check_format

VERSION = 1
ALL = "*"
LONGEST_NAME = 63


@dataclass(frozen=True)
class User:
    """A user; ``releases`` are names of published tables, or ``*``."""

    name: str
    verifier: Verifier
    releases: tuple[str, ...] = (ALL,)

    def may(self, release: str) -> bool:
        """Whether a release is for this user."""
        return ALL in self.releases or release in self.releases


@dataclass(frozen=True)
class _Kept:
    secret: bytes
    users: Mapping[str, User] = field(default_factory=dict)


class Users:
    """The users file; one that is not there is made by the first ``add``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._kept = _Kept(secrets.token_bytes(32))
        self._look()

    def names(self) -> list[str]:
        """All users, in order."""
        return sorted(self._look().users)

    def find(self, name: str) -> User | None:
        """A user, or None."""
        return self._look().users.get(name)

    def verifier(self, name: str) -> tuple[Verifier, bool]:
        """The verifier of a user and true, or one that no password satisfies and false.

        Both are made for everyone, so that the time taken does not tell them apart.
        """
        kept = self._look()
        false = mock(name, kept.secret)
        user = kept.users.get(name)
        return (false, False) if user is None else (user.verifier, True)

    def add(self, name: str, password: str, releases: Collection[str] = (ALL,)) -> User:
        """Add a user, or give one another password or other releases."""
        if not name or len(name.encode()) > LONGEST_NAME or "\0" in name:
            raise DataError(
                f"a user's name has 1 to {LONGEST_NAME} bytes", hint="choose a shorter name"
            )
        made = User(name, verifier(password), tuple(releases))
        with self._alone():
            kept = self._read()
            self._write(_Kept(kept.secret, {**kept.users, name: made}))
        return made

    def remove(self, name: str) -> bool:
        """Remove a user; whether there was one."""
        with self._alone():
            kept = self._read()
            left = {each: user for each, user in kept.users.items() if each != name}
            if len(left) == len(kept.users):
                return False
            self._write(_Kept(kept.secret, left))
        return True

    # -- file ----------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes the file meanwhile, in this process or another."""
        with self._lock:
            try:
                # The folder, since the file itself is replaced by another.
                file = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                raise OperationalError("the users file cannot be written") from None
            try:
                lock(file, wait=True)
                yield
            finally:
                os.close(file)

    def _look(self) -> _Kept:
        with self._lock:
            return self._read()

    def _read(self) -> _Kept:
        try:
            state = self.path.stat()
        except FileNotFoundError:
            self._seen, self._kept = None, _Kept(self._kept.secret)
            return self._kept
        except OSError:
            raise OperationalError("the users file cannot be read") from None
        seen = (state.st_ino, state.st_mtime_ns, state.st_size)
        if seen != self._seen:
            self._kept, self._seen = _parsed(self.path), seen
        return self._kept

    def _write(self, kept: _Kept) -> None:
        document = {
            "version": VERSION,
            "secret": kept.secret.hex(),
            "users": {
                user.name: {"verifier": str(user.verifier), "releases": list(user.releases)}
                for user in sorted(kept.users.values(), key=lambda user: user.name)
            },
        }
        data = json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"
        try:
            with written(self.path, force=True, mode=0o600) as file:
                file.write(data)
        except (OSError, OperationalError):
            raise OperationalError("the users file cannot be written") from None
        self._seen = None  # read again


def _parsed(path: Path) -> _Kept:
    try:
        document: Any = json.loads(path.read_bytes())
        version = document["version"]
        if not isinstance(version, int):
            raise ValueError
        check_format(version, VERSION, "the users file", where="USERS", error=OperationalError)
        secret = bytes.fromhex(document["secret"])
        users = {
            str(name): User(
                str(name), Verifier.read(entry["verifier"]), tuple(map(str, entry["releases"]))
            )
            for name, entry in document["users"].items()
        }
        if len(secret) < 16:
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DataError, RecursionError):
        raise OperationalError(
            "the users file cannot be read: it is damaged, or not a users file",
            hint="restore it, or make a new one with `privsql user add`",
        ) from None
    return _Kept(secret, users)

"""The publisher's key.

The **key** makes the draws of a publication repeatable for its holder alone
(:mod:`privsql.publish.keys.randomness`).  It is a small text file that only its owner may read:

    privsql publisher key: keep it secret, whoever reads it can undo the perturbation
    version: 1
    id: 66687aadf862bd77
    key: AAAA...

Beside it lies the ledger of what was published under it (:mod:`privsql.publish.keys.ledger`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from privsql.errors import OperationalError
from privsql.files import sync_folder
from privsql.publish.keys.ledger import Ledger
from privsql.publish.keys.randomness import KEY_BYTES
from privsql.release.formats import check_format

HEADER = "privsql publisher key: keep it secret, whoever reads it can undo the perturbation"
VERSION = 1
FILE_LIMIT = 4096


class KeyFileError(OperationalError):
    """A key file cannot be made, read or understood."""

    code = "key"


@dataclass(frozen=True)
class PublisherKey:
    """A key, its public name, and a warning about its file if there is one."""

    key: bytes = field(repr=False)
    key_id: str
    path: Path
    warning: str | None = None

    def ledger(self) -> Ledger:
        """Open the ledger beside the key."""
        return Ledger(self.path.with_name(self.path.name + ".ledger"), self.key_id)


def key_name(key: bytes) -> str:
    """Name a key: 8 bytes of its SHA-256, which identify a key and reveal nothing about it.

    >>> key_name(bytes(32))
    '66687aadf862bd77'
    """
    return hashlib.sha256(key).digest()[:8].hex()


def new_key(path: str | Path) -> PublisherKey:
    """Make a key and write it to a new file that only its owner may read."""
    path, key = Path(path), secrets.token_bytes(KEY_BYTES)
    lines = [HEADER, f"version: {VERSION}", f"id: {key_name(key)}"]
    text = "\n".join([*lines, f"key: {base64.b64encode(key).decode()}", ""])
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileError(
            f"{path} exists already; a key is never overwritten",
            hint="use this key, or choose another name for the new one",
        ) from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    sync_folder(path)
    return PublisherKey(key, key_name(key), path)


def read_key(path: str | Path) -> PublisherKey:
    """Read a key file; no error quotes what it found there."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(FILE_LIMIT + 1)
    except FileNotFoundError:
        raise KeyFileError(
            f"there is no key at {path}", hint=f"make one: privsql key new {path}"
        ) from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    key = _parsed(path, content)
    warning = None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        warning = f"{path} is accessible to others than its owner; restrict it: chmod 600 {path}"
    return PublisherKey(key, key_name(key), path, warning)


def _parsed(path: Path, content: bytes) -> bytes:
    lines = content.decode("ascii", "replace").splitlines()
    if len(content) > FILE_LIMIT or not lines or lines[0].strip() != HEADER:
        raise KeyFileError(
            f"{path} is not a key of privsql", hint="privsql key new makes one at a new name"
        )
    fields = dict(line.partition(":")[::2] for line in lines[1:] if line.strip())
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    said = fields.get("version", "")
    if not (said.isascii() and said.isdigit()):
        raise KeyFileError(f"the key in {path} does not say which version it has")
    check_format(int(said), VERSION, "the key", where=path, error=KeyFileError)
    try:
        key = base64.b64decode(fields.get("key", ""), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES or key_name(key) != fields.get("id"):
        raise KeyFileError(
            f"the key in {path} is damaged: it does not match its id",
            hint="restore the file from a backup; a new key would use fresh draws for everyone",
        )
    return key

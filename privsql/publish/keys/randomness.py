"""Repeatable randomness: draws from a pseudo-random function.

Fresh noise on every publication averages away: at p = .5 and ten values, one release gives
the best guess of a person's value in 55% of cases, ten releases in 96%.  So a draw is a
function of a secret key, the person (*unit*), the column and the original value:

    U = AES(k_unit, unit)                          unit: 128 bits, two words
    w = AES(k_column, U xor (value, stream))       two 64-bit words a row

Publishing again, or appending the same person, repeats it.  This is the CBC-MAC of a message
of two blocks, which is a pseudo-random function for messages of one fixed length; its inputs
collide only when two units meet by chance in 128 bits.  Each column has a key of its own,
``k_column = HMAC-SHA256(key, column)``, so that the columns of a row are independent.

The *stream* numbers further draws for the same row: one below 2^32 names a purpose, and what
:func:`bounded` must draw again counts on above it.

>>> draws = Seeded(1)
>>> units, values = np.array([[7, 0], [8, 0]], dtype=np.uint64), np.array([3, 3])
>>> (draws.words(units, "age", values) == Seeded(1).words(units, "age", values)).all()
np.True_
>>> bounded(draws, units, "age", values, 10).tolist()
[7, 6]
"""

from __future__ import annotations

import hashlib
import hmac
import os
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from privsql.errors import DataError, InterfaceError

Words = NDArray[np.uint64]
Codes = NDArray[np.int64]

KEY_BYTES = 32

# Rows worked on at once: the buffers of a chunk (1 MiB each) stay in a core's cache.
CHUNK = 1 << 16

# Bytes of a row's two words, which are a block of the cipher, and as many rows of nothing.
BLOCK = 16
ZEROS = memoryview(bytes(BLOCK * CHUNK))

# Streams below this name purposes; a repetition of one adds multiples of it.
PURPOSES = 1 << 32

# How many values bounded() can choose from.
SIZE_LIMIT = 1 << 63


class Blocks:
    """AES-256 on many 128-bit blocks at once, shape ``(n, 2)``, low word first.

    One block at a time is all that is asked of the cipher: the chaining is the caller's.
    Words are little-endian on every machine, so that a key repeats its draws on any.
    """

    def __init__(self, key: bytes) -> None:
        # ECB is the bare block cipher, which is what a MAC is built from.
        self._encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305

    def __call__(self, blocks: Words) -> Words:
        """Encrypt each block on its own; the result is read-only."""
        plain = np.ascontiguousarray(blocks, dtype="<u8")
        if not len(plain):
            return np.empty((0, 2), dtype=np.uint64)
        cipher = self._encryptor.update(plain.reshape(-1).view(np.uint8).data)
        return np.frombuffer(cipher, dtype="<u8").reshape(-1, 2)


class Randomness(ABC):
    """Where the draws of a publication come from."""

    memory: ClassVar[bool]  # whether publishing again repeats the draws
    unsafe: ClassVar[bool] = False  # whether others can repeat them as well

    @abstractmethod
    def words(self, units: Words, column: str, codes: Codes, stream: int = 0) -> Words:
        """Draw two words per row, shape ``(n, 2)``, for units ``(n, 2)`` and values ``(n,)``."""

    @property
    def unit_key(self) -> bytes:
        """Key under which text becomes a unit (``units.unit_words``); no secret by default."""
        return bytes(KEY_BYTES)


class Keyed(Randomness):
    """Draws that only the holder of a key can repeat, and that repeat for the holder.

    >>> Keyed(bytes(32))
    Keyed(key hidden)
    """

    memory = True

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise InterfaceError(f"a key is {KEY_BYTES} bytes")
        self._key = key
        self._columns: dict[str, bytes] = {}

    def __repr__(self) -> str:
        """Never show the key."""
        return f"{type(self).__name__}(key hidden)"

    @property
    def unit_key(self) -> bytes:
        """Subkey under which text becomes a unit."""
        return subkey(self._key, "unit text")

    def words(self, units: Words, column: str, codes: Codes, stream: int = 0) -> Words:
        """``AES(k_column, AES(k_unit, unit) xor (code, stream))``, in chunks."""
        if units.shape != (len(codes), 2):
            raise InterfaceError("draws need one unit of two words for each value")
        if column not in self._columns:
            self._columns[column] = subkey(self._key, "column", column)
        inner, outer = Blocks(subkey(self._key, "unit")), Blocks(self._columns[column])
        drawn: Words = np.empty((len(codes), 2), dtype=np.uint64)
        for start in range(0, len(codes), CHUNK):
            rows = slice(start, start + CHUNK)
            person = inner(units[rows])
            block = np.empty(person.shape, dtype="<u8")
            # int64 to uint64 keeps the bits, so that a negative code stays a value of its own.
            np.bitwise_xor(person[:, 0], codes[rows].astype(np.uint64), out=block[:, 0])
            np.bitwise_xor(person[:, 1], np.uint64(stream), out=block[:, 1])
            drawn[rows] = outer(block)
        return drawn


class SystemSource(Randomness):
    """The operating system's randomness: a one-off, which no key can repeat."""

    memory = False

    def words(self, units: Words, column: str, codes: Codes, stream: int = 0) -> Words:
        """Fresh words; unit, column and value play no part.

        They are the key stream of AES-256 in counter mode under a key that the operating
        system gives for each call and nobody keeps: several times faster than asking it for
        every byte.
        """
        # A row more than there are: the cipher may want room for a block that it does not write.
        drawn: Words = np.empty((len(codes) + 1, 2), dtype=np.uint64)
        room = drawn.data.cast("B")
        stream_of = Cipher(algorithms.AES(os.urandom(KEY_BYTES)), modes.CTR(bytes(16))).encryptor()
        for start in range(0, BLOCK * len(codes), len(ZEROS)):
            count = min(len(ZEROS), BLOCK * len(codes) - start)
            stream_of.update_into(ZEROS[:count], room[start : start + count + BLOCK])
        return drawn[:-1]


class Seeded(Keyed):
    """Draws that anyone who knows a small number can repeat: for tests only."""

    unsafe = True

    def __init__(self, seed: int) -> None:
        super().__init__(hashlib.sha256(f"privsql unsafe seed {int(seed)}".encode()).digest())

    @property
    def unit_key(self) -> bytes:
        """No secret: the seed is none either."""
        return bytes(KEY_BYTES)


def subkey(key: bytes, *labels: str) -> bytes:
    """Derive a key of its own for a purpose: HMAC-SHA256 of the labels, each with its length."""
    message = b"privsql 1"
    for label in labels:
        # A name that is not valid Unicode must still be a name of its own.
        text = label.encode("utf-8", "surrogatepass")
        message += len(text).to_bytes(8, "little") + text
    return hmac.digest(key, message, "sha256")


def uniform(words: Words) -> NDArray[np.float64]:
    """Turn words into numbers in [0, 1): the upper 53 bits, each multiple of 2^-53 alike.

    >>> uniform(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)).tolist()
    [0.0, 0.5, 0.9999999999999999]
    """
    # As int64, which machines convert to floats much faster than uint64.
    upper = (words >> np.uint64(11)).view(np.int64)
    return upper * np.float64(2.0**-53)


def bounded(
    randomness: Randomness,
    units: Words,
    column: str,
    codes: Codes,
    size: int,
    *,
    stream: int = 0,
    first: Words | None = None,
) -> Codes:
    """Draw exactly uniformly from 0 .. size-1, for any size up to 2^63.

        w mod size,  drawn again while w >= 2^64 - (2^64 mod size)

    (for sizes up to 2^31 the same by a product, see ``_reduced``).
    Without the rejection the small numbers would come up more often: by a third of their
    chance near size 2^62.  A row's rejected draws are repeated with it, since the stream is
    part of what the pseudo-random function sees.  The draw uses the second word of a pair;
    ``first`` gives pairs of ``stream`` that were drawn already and whose second word is free.
    """
    if not 1 <= size <= SIZE_LIMIT:
        raise DataError("a draw needs between 1 and 2^63 values to choose from")
    if not 0 <= stream < PURPOSES:
        raise InterfaceError("streams are numbered from 0 to 2^32 - 1")
    words = randomness.words(units, column, codes, stream) if first is None else first
    drawn, rejected = _reduced(words[:, 1], size)
    while len(rejected):
        stream += PURPOSES
        again = randomness.words(units[rejected], column, codes[rejected], stream)
        drawn[rejected], still = _reduced(again[:, 1], size)
        rejected = rejected[still]
    return drawn


def _reduced(words: Words, size: int) -> tuple[Codes, NDArray[np.intp]]:
    """Bring words down to 0 .. size-1, and say which of them must be drawn again.

    A small size takes the upper 32 bits u of a word: ``floor(u size / 2^32)``, drawn again
    where ``u size mod 2^32 < 2^32 mod size``, which leaves each number equally many u.  A
    product costs a fraction of the division that the general rule needs.
    """
    if size <= 1 << 31:
        product = (words >> np.uint64(32)) * np.uint64(size)
        drawn = (product >> np.uint64(32)).view(np.int64)
        surplus = (1 << 32) % size
        if surplus == 0:
            return drawn, np.empty(0, dtype=np.intp)
        return drawn, np.flatnonzero(product.astype(np.uint32) < np.uint32(surplus))
    divisor = np.uint64(size)
    # Division by one number is vectorised, the remainder is not.
    remainder = words - words // divisor * divisor
    excess = (1 << 64) % size
    if excess == 0:
        return remainder.view(np.int64), np.empty(0, dtype=np.intp)
    return remainder.view(np.int64), np.flatnonzero(words >= np.uint64((1 << 64) - excess))

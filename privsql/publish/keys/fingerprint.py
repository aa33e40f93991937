"""The state of a source: a keyed digest of all units and values.

A draw is a pseudo-random function of unit, column and value.  Its words, added up over all
rows, are a digest of the whole column that does not depend on the order of the rows, and that
costs an addition a row since the words are drawn anyway:

    state(column) = HMAC(k_state, sum of w(unit, value) over rows, mod 2^64 a word)

Adding up counts a row that comes twice, which XOR would cancel.  Two states meet by chance in
128 bits.  The sum of a single row is its draw, which would tell whether a value was kept: hence
the HMAC, after which a digest shows only whether two states are the same.

>>> units, codes = np.array([[7, 0], [8, 0]], dtype=np.uint64), np.array([3, 4])
>>> def state(units, codes):
...     witness = Witness(bytes(32))
...     witness.words(units, label("age", "rules"), codes)
...     return witness.state("age", "rules")
>>> state(units, codes) == state(units[::-1], codes[::-1])
True
>>> state(units, codes) == state(units, codes[::-1])
False
"""

from __future__ import annotations

import hmac

import numpy as np

from privsql.publish.keys.randomness import Codes, Keyed, Words, subkey

MODULUS = 1 << 64


class Witness(Keyed):
    """Draws under a key that also remember what they were drawn for."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self._state_key = subkey(key, "state")
        self._sums: dict[str, tuple[int, int]] = {}

    def words(self, units: Words, column: str, codes: Codes, stream: int = 0) -> Words:
        """Draw as the key does; the first draw of each row enters the state of its column."""
        drawn = super().words(units, column, codes, stream)
        if stream == 0:
            first, second = self._sums.get(column, (0, 0))
            # A word at a time: numpy adds pairs up twenty times slower.
            first += int(drawn[:, 0].sum(dtype=np.uint64))
            second += int(drawn[:, 1].sum(dtype=np.uint64))
            self._sums[column] = (first % MODULUS, second % MODULUS)
        return drawn

    def state(self, column: str, parameters: str) -> str:
        """Digest of what was drawn for a column under these parameters; empty if nothing was."""
        sums = self._sums.get(label(column, parameters))
        if sums is None:
            return ""
        message = b"".join(word.to_bytes(8, "little") for word in sums)
        return hmac.digest(self._state_key, message, "sha256")[:16].hex()


def label(column: str, parameters: str) -> str:
    """What the draws of a column are called (``retention.Sampler``): its name and its rules.

    SQL does not tell Age from age, so a new spelling must not bring new draws.
    """
    return f"{column.casefold()}\x1f{parameters}"

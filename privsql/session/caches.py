"""The cache of a server's answers; a release does not change.

Nothing in a question may change between two times that it is asked, and what was answered once
is no news to the history of differences.  So an answer is remembered for its user and the version
of its release, whichever connection asks: never for another user, never after the release was
published again.

    Remembered   of one user about one version: up to ``EACH`` bytes, the latest used
    Answers      of a server: up to ``TOTAL`` bytes; users who asked longest ago are forgotten first
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence

from privsql.answer.outcome import Outcome
from privsql.engines.recent import Recent
from privsql.session.settings import Settings

# Bytes that a server remembers, those of one user about one release, those of one answer, and
# characters of a statement whose answer is remembered.
TOTAL = 32_000_000
EACH = 4_000_000
SMALL = 32_000
SHORT = 20_000

# Users, each with a release, of whom something is remembered.
OWNERS = 1000

# Bytes of an answer beside its values: columns, notices, the question's key.
_FRAME = 3_000

_Kept = tuple[Outcome, tuple[str, ...]]


class Remembered:
    """Small answers by their question, of one user about one release."""

    def __init__(self) -> None:
        self._answers: Recent[Hashable, tuple[_Kept, int]] = Recent(
            EACH // _FRAME, lambda kept: kept[1], EACH
        )

    @property
    def bytes(self) -> int:
        """What is kept, about."""
        return self._answers.weight

    def get(self, key: Hashable | None) -> _Kept | None:
        """An answer and the digests of the groups behind it."""
        found = None if key is None else self._answers.get(key)
        return found and found[0]

    def put(self, key: Hashable | None, outcome: Outcome, groups: Sequence[str]) -> None:
        """Keep an answer, if it is one and small."""
        if key is None or outcome.kind != "rows" or outcome.table.nbytes > SMALL:
            return
        said = sum(len(notice.text) for notice in outcome.notices)
        bars = sum(each.nbytes for each in outcome.bars.values())
        weight = _FRAME + outcome.table.nbytes + said + bars + 2 * len(str(key))
        self._answers.put(key, ((outcome, tuple(groups)), weight))


class Answers:
    """What a server remembers, by user and version of a release."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: OrderedDict[tuple[str, Hashable], Remembered] = OrderedDict()

    def of(self, user: str, version: Hashable) -> Remembered:
        """The answers of one user; those of users who asked longest ago make room."""
        with self._lock:
            found = self._owners.setdefault((user, version), Remembered())
            self._owners.move_to_end((user, version))
            held = sum(each.bytes for each in self._owners.values())
            while (held > TOTAL - EACH or len(self._owners) > OWNERS) and len(self._owners) > 1:
                held -= self._owners.popitem(last=False)[1].bytes
            return found

    def forget(self, version: Hashable) -> None:
        """Forget what was answered from a version that is no longer served."""
        with self._lock:
            for each in [each for each in self._owners if each[1] == version]:
                del self._owners[each]


def key_of(
    sql: str,
    parameters: Sequence[object] | Mapping[str, object] | None,
    options: Mapping[str, object],
    settings: Settings,
) -> Hashable | None:
    """What makes two questions the same one; None where they cannot be compared.

    1, 1.0 and true are equal in Python and not in SQL, so types take part.  What a session
    shows of its settings is no answer.
    """
    if len(sql) > SHORT or isinstance(parameters, Mapping):
        return None
    if sql.lstrip()[:4].upper() in ("SHOW", "SET ", "RESE"):
        return None
    values = tuple((type(value), value) for value in parameters or ())
    key = (sql, values, settings, tuple(sorted(options.items())))
    try:
        hash(key)
    except TypeError:  # a list among the parameters
        return None
    return key

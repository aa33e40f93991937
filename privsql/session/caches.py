"""The cache of a server's answers; a release does not change.

Nothing in a question may change between two times that it is asked, and what was answered once
is no news to the history of differences.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from privsql.answer.outcome import Outcome
from privsql.engines.recent import Recent
from privsql.session.settings import Settings

# Answers that are kept, bytes of each, and characters of a statement that is remembered.
MOST = 256
SMALL = 32_000
SHORT = 20_000


class Remembered:
    """Small answers by their question, of one user."""

    def __init__(self) -> None:
        self._answers: Recent[Hashable, tuple[Outcome, tuple[str, ...]]] = Recent(MOST)

    def get(self, key: Hashable | None) -> tuple[Outcome, tuple[str, ...]] | None:
        """An answer and the digests of the groups behind it."""
        return None if key is None else self._answers.get(key)

    def put(self, key: Hashable | None, outcome: Outcome, groups: Sequence[str]) -> None:
        """Keep an answer, if it is one and small."""
        if key is None or outcome.kind != "rows" or outcome.table.nbytes > SMALL:
            return
        self._answers.put(key, (outcome, tuple(groups)))


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

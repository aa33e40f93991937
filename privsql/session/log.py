"""The log of a server's statements, written before an answer is sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from privsql.answer.outcome import Outcome
from privsql.errors import Error, NotSupportedError
from privsql.policy.journal import Entry, JournalError, digest
from privsql.session.gate import Served


@contextmanager
def logged(
    served: Served | None, sql: str, table: str, groups: Sequence[str]
) -> Iterator[Callable[[Outcome], Outcome]]:
    """Write what becomes of a statement; ``groups`` are digests that judging it adds."""
    begun = time.monotonic()
    journal = None if served is None else served.journal
    if served is None or journal is None:
        yield lambda outcome: outcome
        return
    user = served.user

    def write(decision: str, reason: str = "") -> None:
        behind = digest("".join(groups)) if groups else ""
        seconds = time.monotonic() - begun
        journal.append(Entry(user, sql, decision, reason, (table,), behind, seconds))

    def log(outcome: Outcome) -> Outcome:
        personal = outcome.personal
        reason = "personal-group" if personal.refused or personal else ""
        write("flagged" if personal else "answered", reason)
        return outcome

    try:
        yield log
    except Error as problem:
        if not isinstance(problem, JournalError):
            kind = "refused" if isinstance(problem, NotSupportedError) else "failed"
            write(kind, problem.code)
        raise

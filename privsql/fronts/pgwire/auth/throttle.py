"""Wrong passwords slow down whoever gives them: one user's name from one address.

    first failure   the next attempt of the pair is judged a quarter of a second later
    each further    after twice as long, up to ``LONGEST`` seconds

Attempts of one pair are judged one after another, however many connections they come by.  By the
name alone anybody could keep a user out; by the address alone one person could keep out everybody
behind a router.  A right password ends the delay, and so do ``FORGOTTEN`` seconds without a try.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from privsql.engines.recent import Recent
from privsql.fronts.pgwire.errors import PasswordError

SHORTEST = 0.25
LONGEST = 4.0
FORGOTTEN = 600.0

# Pairs that are remembered.
MOST = 10_000


@dataclass(eq=False)
class _Pair:
    failures: int = 0
    last: float = 0.0
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)


class Throttle:
    """The failures of a server's clients; used in one event loop."""

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep, self._clock = sleep, clock
        self._pairs: Recent[tuple[str, str], _Pair] = Recent(MOST)

    @asynccontextmanager
    async def judging(self, user: str, address: str) -> AsyncIterator[None]:
        """Judge an attempt within; a ``PasswordError`` counts as a failure."""
        pair = self._pairs.get((user, address))
        if pair is None:
            pair = _Pair()
            self._pairs.put((user, address), pair)
        async with pair.judging:
            now = self._clock()
            if now - pair.last > FORGOTTEN:
                pair.failures = 0
            left = pair.last + delay(pair.failures) - now
            if left > 0:
                await self._sleep(left)
            try:
                yield
            except PasswordError:
                pair.failures, pair.last = pair.failures + 1, self._clock()
                raise
            pair.failures = 0


def delay(failures: int) -> float:
    """Seconds between two attempts after so many failures.

    >>> [delay(n) for n in (0, 1, 2, 3, 5, 100)]
    [0.0, 0.25, 0.5, 1.0, 4.0, 4.0]
    """
    return min(LONGEST, SHORTEST * 2 ** min(failures - 1, 20)) if failures else 0.0

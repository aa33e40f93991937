"""A bounded cache: what was used last, up to a number and a weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key; beyond ``most`` of them those that were used longest ago are dropped.

    So are they while all together weigh more than ``heaviest``; by default each weighs nothing.
    Threads may share it.

    >>> cache: Recent[str, int] = Recent(2)
    >>> [cache.put(key, value) for value, key in enumerate("ab")]
    [[], []]
    >>> cache.get("a"), cache.put("c", 2), cache.get("b")
    (0, [1], None)
    >>> texts: Recent[int, str] = Recent(9, len, 5)
    >>> [texts.put(len(text), text) for text in ("a", "bb", "cccc", "dddddd")]
    [[], [], ['a', 'bb'], ['cccc', 'dddddd']]
    """

    def __init__(
        self, most: int, weigh: Callable[[V], int] = lambda _: 0, heaviest: int = 0
    ) -> None:
        self._most, self._weigh, self._heaviest = most, weigh, heaviest
        self._known: OrderedDict[K, V] = OrderedDict()
        self._weights: dict[K, int] = {}
        self.weight = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: K, value: V) -> list[V]:
        """Keep a value; those that are dropped for it."""
        with self._lock:
            self.weight -= self._weights.get(key, 0)
            self._weights[key] = self._weigh(value)
            self.weight += self._weights[key]
            self._known[key] = value
            self._known.move_to_end(key)
            dropped = []
            while len(self._known) > self._most or self.weight > self._heaviest:
                oldest, value = self._known.popitem(last=False)
                self.weight -= self._weights.pop(oldest)
                dropped.append(value)
            return dropped

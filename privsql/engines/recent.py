"""A bounded cache: what was used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key; beyond ``most`` of them the one that was used longest ago is dropped.

    Threads may share it.

    >>> cache: Recent[str, int] = Recent(2)
    >>> [cache.put(key, value) for value, key in enumerate("ab")]
    [None, None]
    >>> cache.get("a"), cache.put("c", 2), cache.get("b")
    (0, 1, None)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: K, value: V) -> V | None:
        """Keep a value; the one that is dropped for it, or None."""
        with self._lock:
            self._known[key] = value
            self._known.move_to_end(key)
            return self._known.popitem(last=False)[1] if len(self._known) > self._most else None

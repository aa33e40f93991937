from __future__ import annotations

import gc
import os
import signal
import sys

import pytest
from hypothesis import settings

from tests.sizes import QUICK, SOAK, slow, thinned

# A run must be repeatable and must not depend on how loaded the machine is.
# PRIVSQL_EXPLORE=1 looks at other examples each time.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("explore" if os.environ.get("PRIVSQL_EXPLORE") else "repeatable")

# A shell starts what it runs in the background deaf to Ctrl-C, and children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Syntax trees are made of many small objects that live long: by default a tenth of the time of the
# whole suite is spent looking for cycles among them.
gc.set_threshold(50_000, 20, 100)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for another speed; see ``tests.sizes``."""
    # A test that somebody names runs, whatever its size.
    named = any("::" in argument for argument in config.args)
    stay = thinned([item.nodeid for item in items])
    kept, left = [], []
    for item, wanted in zip(items, stay, strict=True):
        path = item.path.relative_to(config.rootpath).as_posix()
        soak = item.get_closest_marker("soak") and not SOAK
        out = soak or (QUICK and slow(path)) or not (wanted or named)
        (left if out else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let a strike that Python drops be dropped: whoever strikes does it again (engines.breaks)."""
    told = sys.unraisablehook

    def heard(problem: sys.UnraisableHookArgs) -> None:
        if problem.exc_type.__name__ != "Broken":
            told(problem)

    sys.unraisablehook = heard


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave nothing of DuckDB's binding behind: it lists at the very end what is still held.

    Doctests that another worker ran keep a copy of their module, and pytest keeps them until the
    process ends; connections in cycles wait for the collector.
    """
    for item in getattr(session, "items", []):
        if isinstance(item, pytest.DoctestItem) and item.dtest is not None:
            item.dtest.globs.clear()
    gc.collect()

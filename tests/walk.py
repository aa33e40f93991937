"""Walks through the code: the modules that a real call enters, in the order of first entry.

``python -m tests.walk`` prints the blocks of docs/architecture.md; a test compares.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from privsql.engines import workers

QUESTION = "SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job"


def entered(call: Callable[[Callable[[], None]], object], packages: Sequence[str]) -> list[str]:
    """Our modules of some packages, in the order in which a call enters them first.

    The call is given a function that ends the watch before its own end.
    """
    seen: dict[str, None] = {}
    ended = threading.Event()

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and not ended.is_set():
            name = frame.f_globals.get("__name__", "")
            if any(name.startswith(f"{package}.") for package in packages):
                seen.setdefault(name)

    workers._idle.clear()  # threads that were made before are not watched
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call(ended.set)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(seen)


def query(folder: Path) -> list[str]:
    """One query of a session that was asked another one before."""
    from privsql.session.session import Session
    from tests.sql.clinic import publish

    release = publish(folder, 0.5)
    session = Session(release)
    session.run("SELECT COUNT(*) FROM patients WHERE age > 30")
    session.close()
    session = Session(release)
    try:
        return entered(lambda _: session.run(QUESTION), ("privsql", "udfs"))
    finally:
        session.close()


def publication(folder: Path) -> list[str]:
    """One publication."""
    from tests.sql.clinic import publish

    (folder / "first").mkdir()
    (folder / "second").mkdir()
    publish(folder / "first", 0.5)
    return entered(lambda _: publish(folder / "second", 0.5), ("privsql", "udfs"))


def wire(folder: Path) -> list[str]:
    """A login and one statement over the wire; the session's part is that of a query."""
    from tests.fronts.pgwire.conftest import serving
    from tests.sql.clinic import publish

    release = publish(folder, 0.5)

    def asked(end: Callable[[], None]) -> None:
        with serving([release], folder) as running:
            client = running.client()
            client.query(QUESTION)
            end()
            client.close()

    asked(lambda: None)
    for name in ("journal", "history"):
        for left in folder.glob(f"{name}*"):
            left.unlink()
    return entered(asked, ("privsql.fronts.pgwire", "privsql.sql.postgres"))


WALKS: dict[str, Callable[[Path], list[str]]] = {
    "One query": query,
    "One publication": publication,
    "One statement over the wire": wire,
}


def block(names: Sequence[str]) -> str:
    """Lines of a walk: each module with the first line of its docstring."""
    width = max(map(len, names))
    lines = []
    for name in names:
        said = (importlib.import_module(name).__doc__ or "").strip().splitlines()[0]
        lines.append(f"{name:{width}}  {said}")
    return "\n".join(lines)


if __name__ == "__main__":
    for title in sys.argv[1:] or WALKS:
        with tempfile.TemporaryDirectory() as made:
            print(f"### {title}\n\n```text\n{block(WALKS[title](Path(made)))}\n```\n")

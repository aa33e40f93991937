"""Write into pages what their blocks print today: ``python -m tests.docs docs/analyst.md``.

Read the difference before it is committed: this makes any page agree with the code.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.docs.pages import Page, begin, environment, filled, read
from tests.programs import command


def main(names: list[str]) -> None:
    """Fill pages."""
    for name in names:
        _fill(read(Path(name)))


def _fill(page: Page) -> None:
    with tempfile.TemporaryDirectory() as place:
        demo, folder = Path(place) / "privsql-demo", Path(place) / "followed"
        if page.notes.get("folder") == "demo":
            done = command(["demo"], cwd=demo.parent, env=environment(demo.parent))
            assert done.returncode == 0, done.stderr
        begin(page, folder, demo)
        page.path.write_text(filled(page, folder))


if __name__ == "__main__":
    main(sys.argv[1:])

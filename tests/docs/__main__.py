"""Write into pages what their blocks print today: ``python -m tests.docs docs/analyst.md``.

Read the difference before it is committed: this makes any page agree with the code.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.docs.pages import begin, filled, read, typed

for name in sys.argv[1:]:
    page = read(Path(name))
    with tempfile.TemporaryDirectory() as place:
        demo, folder = Path(place) / "privsql-demo", Path(place) / "followed"
        if page.notes.get("folder") == "demo":
            code, _, said = typed([shutil.which("privsql") or "privsql", "demo"], demo.parent)
            assert code == 0, said
        begin(page, folder, demo)
        page.path.write_text(filled(page, folder))

"""Write into pages what their blocks print today: ``python -m tests.docs docs/analyst.md``.

Read the difference before it is committed: this makes any page agree with the code.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.docs.pages import filled, read, typed

for name in sys.argv[1:]:
    page = read(Path(name))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if page.notes.get("folder") == "demo":
            code, _, said = typed([shutil.which("privsql") or "privsql", "demo"], folder)
            assert code == 0, said
            folder /= "privsql-demo"
        page.path.write_text(filled(page, folder))

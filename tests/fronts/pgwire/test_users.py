"""Users that are added by several programs at once are all there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from privsql.fronts.pgwire.auth.users import Users

CODE = """
import sys
from privsql.fronts.pgwire.auth.users import Users
users = Users(sys.argv[1])
for i in range(8):
    users.add(f"{sys.argv[2]}{i}", "a password")
"""


def test_no_user_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    programs = [
        subprocess.Popen([sys.executable, "-c", CODE, str(file), name]) for name in ("a", "b", "c")
    ]
    assert [each.wait(120) for each in programs] == [0, 0, 0]
    assert len(Users(file).names()) == 24

"""The table of docs/threat-model.md: ``python -m tests.policy.dashboards [rows]``."""

from __future__ import annotations

import sys

from privsql.fronts.demo.questions import ROWS
from tests.policy.dashboards.boards import BOARDS
from tests.policy.dashboards.measuring import report

if __name__ == "__main__":
    report(print, BOARDS, int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)

"""``python -m tests.suites [suite ...] [--verbose]``."""

from __future__ import annotations

from tests.suites.run import main

if __name__ == "__main__":
    raise SystemExit(main())

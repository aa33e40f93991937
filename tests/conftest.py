from __future__ import annotations

import os

from hypothesis import settings

# A run must be repeatable and must not depend on how loaded the machine is.
# PRIVSQL_EXPLORE=1 looks at other examples each time.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("explore" if os.environ.get("PRIVSQL_EXPLORE") else "repeatable")

"""How much the tests do: three speeds of one suite.

    make quick    for use while editing: without the places named in ``SLOW``
    make test     everything, simulations and fuzzers at a small seeded size, tests of many
                  cases (``THINNED``) with some of them
    make soak     everything at its large size, and what is marked ``soak`` as well

``PRIVSQL_SOAK=1`` asks for the large sizes and ``PRIVSQL_QUICK=1`` leaves out the slow places; the
Makefile sets them.  A test writes its numbers as ``sized(2_000, 20_000)``.  Tolerances follow
from the number, never the other way round.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

SOAK = os.environ.get("PRIVSQL_SOAK", "0") not in ("", "0")
QUICK = os.environ.get("PRIVSQL_QUICK", "0") not in ("", "0") and not SOAK

# Folders and files that ``make quick`` leaves out: most of the time of ``make test`` is theirs.
SLOW = (
    "tests/advise/test_advise_widths.py",
    "tests/docs",
    "tests/engines/test_silence.py",
    "tests/engines/test_walls.py",
    "tests/fixtures",
    "tests/fronts/pgwire",
    "tests/fronts/shell",
    "tests/fronts/test_alchemy.py",
    "tests/fronts/test_cli_history.py",
    "tests/fronts/test_cli_serve.py",
    "tests/fronts/test_compliance.py",
    "tests/fronts/test_converting.py",
    "tests/fronts/test_demo.py",
    "tests/fronts/test_equal_fronts.py",
    "tests/learn",
    "tests/mutants",
    "tests/oracle",
    "tests/papers",
    "tests/policy/test_adult.py",
    "tests/policy/test_attacks.py",
    "tests/policy/test_copies.py",
    "tests/policy/test_dashboards.py",
    "tests/policy/test_fuzz_bytes.py",
    "tests/policy/test_fuzz_grammar.py",
    "tests/policy/test_hostile.py",
    "tests/policy/test_soundness.py",
    "tests/publish/test_append.py",
    "tests/publish/test_bad_input.py",
    "tests/publish/test_crash.py",
    "tests/publish/test_decoy.py",
    "tests/publish/test_finegrain.py",
    "tests/publish/test_groups.py",
    "tests/publish/test_job.py",
    "tests/publish/test_local.py",
    "tests/publish/test_memory.py",
    "tests/publish/test_options.py",
    "tests/publish/test_sps.py",
    "tests/publish/test_starter.py",
    "tests/publish/test_starter_tables.py",
    "tests/publish/test_types.py",
    "tests/release/test_store.py",
    "tests/sql/test_beside.py",
    "tests/sql/test_coarse.py",
    "tests/sql/test_moments.py",
    "tests/sql/test_ratios.py",
    "tests/sql/test_refusals.py",
    "tests/sql/test_windows.py",
    "tests/suites",
    "tests/test_docs.py",
    "tests/test_packaging.py",
    "tests/udfs/test_coverage.py",
    "tests/udfs/test_register.py",
)

# Of tests with many cases, ``make test`` runs the first and every so-many-th after it, and
# ``make soak`` all.  Attacks and wrong inputs are not thinned: each of them was a hole once.
THINNED = {
    "tests/audit/test_job.py": 2,
    "tests/audit/test_tables_public.py": 4,
    "tests/audit/test_uniqueness.py": 4,
    "tests/channels/test_domain_grid.py": 4,
    "tests/fixtures/test_fixtures.py": 2,
    "tests/fronts/pgwire/test_types.py": 2,
    "tests/fronts/shell/test_terminal.py": 2,
    "tests/fronts/test_alchemy.py": 2,
    "tests/fronts/test_cli_formats.py": 2,
    "tests/fronts/test_cli_query.py": 2,
    "tests/fronts/test_converting.py": 4,
    "tests/fronts/test_equal_fronts.py": 5,
    "tests/learn/test_use.py": 2,
    "tests/oracle/test_relations.py": 2,
    "tests/oracle/test_unbiased.py": 5,
    "tests/publish/test_append.py": 3,
    "tests/publish/test_job.py": 3,
    "tests/publish/test_local.py": 6,
    "tests/publish/test_options.py": 6,
    "tests/publish/test_recode.py": 4,
    "tests/publish/test_starter.py": 3,
    "tests/publish/test_starter_tables.py": 3,
    "tests/publish/test_types.py": 3,
    "tests/publish/test_zones.py": 2,
    "tests/release/test_store.py": 4,
    "tests/sql/test_beside.py": 4,
    "tests/sql/test_coarse.py": 6,
    "tests/sql/test_compacted.py": 2,
    "tests/sql/test_effective.py": 3,
    "tests/sql/test_estimates.py": 2,
    "tests/sql/test_explain.py": 2,
    "tests/sql/test_moments.py": 3,
    "tests/sql/test_names.py": 2,
    "tests/sql/test_ratios.py": 3,
    "tests/sql/test_renamed.py": 2,
    "tests/sql/test_windows.py": 3,
    "tests/test_docs.py": 2,
    "tests/udfs/test_coverage.py": 3,
    "tests/udfs/test_quantile.py": 2,
    "tests/udfs/test_register.py": 4,
}


def sized(test: T, soak: T) -> T:
    """The first in ``make test``, the second in ``make soak``."""
    return soak if SOAK else test


def slow(path: str) -> bool:
    """Whether a file, named from the root of the repository, is left out by ``make quick``."""
    return any(path == place or path.startswith(place + "/") for place in SLOW)


def thinned(names: Sequence[str]) -> list[bool]:
    """Which tests stay, named as pytest names them, in its order: ``file::test[case]``.

    >>> each = [f"tests/sql/test_names.py::test_a[{case}]" for case in "uvwxy"]
    >>> thinned([*each, "tests/sql/test_names.py::test_b", "tests/sql/test_plan.py::test_c[u]"])
    [True, False, True, False, True, True, True]
    """
    seen: Counter[str] = Counter()
    stay = []
    for name in names:
        test, case, _ = name.partition("[")
        every = THINNED.get(test.partition("::")[0], 1) if case and not SOAK else 1
        stay.append(seen[test] % every == 0)
        seen[test] += 1
    return stay

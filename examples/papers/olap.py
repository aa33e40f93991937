"""Privacy Preserving OLAP, reproduced: figures 4 to 14, theorems 1 to 5, lemma 1.

    python examples/papers/olap.py                      everything, a few minutes
    python examples/papers/olap.py --quick --folder X   few rows and runs, for tests

The decision trees of section 6.3 are in ``learning.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from olap_accuracy import column_sweep, condition, released, retention_sweep, stopping, zipf_columns
from olap_data import people
from olap_privacy import breach_curves, median_of_s, one_column, own_distribution, several_columns
from olap_single import integer_masses, interval_widths, relaxed_maximum, replacements, rows_enough
from study import Study


def main(arguments: list[str] | None = None) -> None:
    """Run the study in the order of the paper."""
    study = Study.of("olap", "Privacy Preserving OLAP", arguments)
    table, source = people(np.random.default_rng(1), study.quick)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows_enough(study, table, source)
        integer_masses(study, table, source, folder)
        relaxed_maximum(study, table, source)
        stopping(study, table, source)
        median_of_s(study, table, source)
        one_column(study, table, source)
        several_columns(study, table, source)
        replacements(study, table, source, folder)
        own_distribution(study, table, source)
        found = released(study, table, folder)
        retention_sweep(study, table, source, found)
        condition(study)
        column_sweep(study, table, source, found)
        zipf_columns(study)
        interval_widths(study, folder)
        breach_curves(study, table, source)
    study.write()


if __name__ == "__main__":
    main()

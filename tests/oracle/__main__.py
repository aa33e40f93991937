"""More of the retention-1 oracle, on demand: ``python -m tests.oracle --count 20000 --seed 7``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.oracle.running import published, run
from tests.oracle.sessions import Answers, Layer, StandIn, session_class
from tests.oracle.tables import VARIANTS, World


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="queries to ask")
    parser.add_argument("--seed", type=int, default=7, help="of tables and queries")
    parser.add_argument("--shrink", type=int, default=10, help="failures to cut down")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--stand-in", metavar="FAULT", help='ask a stand-in ("" for an honest one)')
    parser.add_argument("--all", action="store_true", help="print every failure, not the shrunk")
    given = parser.parse_args()
    if given.stand_in is None and session_class() is None:
        print("privsql.fronts.session does not exist yet; try --stand-in ''", file=sys.stderr)
        return 2

    def answers(at: World) -> Answers:
        return Layer(at) if given.stand_in is None else StandIn(at, given.stand_in)

    with (
        tempfile.TemporaryDirectory() as folder,
        published(Path(folder), given.seed, given.variants) as worlds,
    ):
        pairs = [(each, answers(each)) for each in worlds]
        summary = run(pairs, given.count, given.seed, shrunk=given.shrink)
    print(summary)
    for failure in summary.failures:
        if given.all or failure.smallest is not None:
            print(f"\n{failure}")
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())

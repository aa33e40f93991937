"""More of the oracles, on demand.

At retention 1, against DuckDB: ``python -m tests.oracle --count 20000 --seed 7``.
Below it, for answers that are sound in themselves: ``python -m tests.oracle --noisy``, and for
relations between answers: ``python -m tests.oracle --relations --count 200 --form weights``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from tests.oracle import perturbed
from tests.oracle.relations import FORMS, RELATIONS, Reader, tried
from tests.oracle.running import Summary, asked_always, published, run
from tests.oracle.sessions import Answers, Layer, StandIn, session_class
from tests.oracle.sound import both, unsound
from tests.oracle.tables import VARIANTS, World


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000, help="queries to ask")
    parser.add_argument("--seed", type=int, default=7, help="of tables and queries")
    parser.add_argument("--shrink", type=int, default=10, help="failures to cut down")
    parser.add_argument("--noisy", action="store_true", help="releases with retention below 1")
    parser.add_argument("--relations", action="store_true", help="between answers below 1")
    parser.add_argument("--form", choices=FORMS, help="of scans, for --relations")
    parser.add_argument("--rows", type=int, default=perturbed.ROWS, help="of a noisy release")
    parser.add_argument(
        "--variants", nargs="+", choices=(*VARIANTS, *perturbed.VARIANTS), help="of releases"
    )
    parser.add_argument("--stand-in", metavar="FAULT", help='ask a stand-in ("" for an honest one)')
    parser.add_argument("--all", action="store_true", help="print every failure, not the shrunk")
    given = parser.parse_args()
    if given.stand_in is None and session_class() is None:
        print("privsql.session.session does not exist yet; try --stand-in ''", file=sys.stderr)
        return 2
    if given.relations:
        return related(given)
    with tempfile.TemporaryDirectory() as folder:
        summary = noisy(given, Path(folder)) if given.noisy else exact(given, Path(folder))
    print(summary)
    for failure in summary.failures:
        if given.all or failure.smallest is not None:
            print(f"\n{failure}")
    return 1 if summary.failures else 0


def exact(given: argparse.Namespace, folder: Path) -> Summary:
    def answers(at: World) -> Answers:
        return Layer(at) if given.stand_in is None else StandIn(at, given.stand_in)

    with published(folder, given.seed, given.variants or VARIANTS) as worlds:
        pairs = [(each, answers(each)) for each in worlds]
        return run(pairs, given.count, given.seed, shrunk=given.shrink)


def noisy(given: argparse.Namespace, folder: Path) -> Summary:
    chosen = enumerate(given.variants or perturbed.VARIANTS)
    worlds = [perturbed.perturbed_world(folder, v, given.seed + i, given.rows) for i, v in chosen]
    return run(
        both(worlds), given.count, given.seed,
        shrunk=given.shrink, judge=unsound, leave=asked_always,
    )  # fmt: skip


def related(given: argparse.Namespace) -> int:
    """Each relation in ``count`` settings, in turn on every perturbed release."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = enumerate(given.variants or perturbed.VARIANTS)
        worlds = [
            perturbed.perturbed_world(Path(folder), name, given.seed + i, given.rows)
            for i, name in chosen
        ]
        readers = [Reader(partial(_opened, each), given.form) for each in worlds]
        found = tried(readers, list(RELATIONS), given.count, given.seed)
    print(found)
    for each in found.broken if given.all else found.broken[: given.shrink]:
        print(f"\n{each}")
    return 1 if found.broken else 0


def _opened(at: World) -> Any:
    return session_class()(at.release, tables=at.tables)


if __name__ == "__main__":
    sys.exit(main())

"""Change the code in hundreds of places, one at a time, and see whether anybody notices.

    python -m tests.mutants --count 300 --seed 14 --jobs 2 --resume mutants.jsonl

Mutants are drawn by the seed over all modules that plan, scan and reconstruct; those that are
named in ``tests/mutants/modules.py`` are always among them.  With ``--resume`` those that the
file knows are not tried again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.mutants.modules import KERNELS, NAMED, ROOT, files_of, modules
from tests.mutants.running import Fate, done, run, through, warm
from tests.mutants.sites import Mutant, named, sampled

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=320, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--only", metavar="MODULE", nargs="+", help="modules, by their last name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--resume", type=Path, help="file of fates, read and added to")
    parser.add_argument("--list", action="store_true", help="show the mutants and try none")
    parser.add_argument("--unchecked", action="store_true", help="do not try the code as it is")
    given = parser.parse_args()
    found = {
        module: path
        for module, path in modules().items()
        if not given.only or module in given.only or module.rsplit(".", 1)[1] in given.only
    }
    chosen = [named(m, found[m], old, new) for m, old, new in NAMED if m in found]
    chosen += sampled(found, given.count, given.seed)
    if given.list:
        print("\n".join(f"{each.name}: {each.old}  ->  {each.new}" for each in chosen))
        return 0
    known = fates_in(given.resume)
    warm()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        prepare(folder, chosen, given.unchecked)
        left = [each for each in chosen if each.name not in known]

        def tell(mutant: Mutant, fate: Fate) -> None:
            known[fate.mutant] = fate
            if given.resume is not None:
                with given.resume.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(asdict(fate)) + "\n")
            verdict = f"killed by {fate.stage}" if fate.killed else "SURVIVED"
            print(f"{verdict:18}{fate.seconds:6.1f} s  {fate.mutant}", flush=True)

        run(left, folder, given.jobs, tell)
    print(table(chosen, known))
    return 0 if all(known[each.name].killed for each in chosen) else 1


def prepare(folder: Path, chosen: Sequence[Mutant], unchecked: bool) -> None:
    """Releases, recorded answers, and the battery on the code as it is: it must pass."""
    from tests.mutants import battery

    done(partial(battery.publish, folder), folder, "publish")
    done(partial(battery.record, folder), folder, "record")
    if unchecked:
        return
    files = {file for each in chosen for file in files_of(each.module)}
    if any(each.module.startswith("udfs.") for each in chosen):
        files |= set(KERNELS)
    found: Any = done(partial(through, None, folder, sorted(files)), folder, "unchanged")
    if found != ("", ""):
        raise SystemExit(f"the code as it is fails: {found}")


def fates_in(path: Path | None) -> dict[str, Fate]:
    if path is None or not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {fate.mutant: fate for fate in (Fate(**json.loads(line)) for line in lines)}


def table(chosen: Sequence[Mutant], fates: dict[str, Fate]) -> str:
    """By module, by stage, and every survivor with its place."""
    by_module: dict[str, list[Mutant]] = defaultdict(list)
    for each in chosen:
        by_module[each.module].append(each)
    lines = [f"\n{'module':34}{'mutants':>8}{'killed':>8}{'survived':>10}{'s each':>8}"]
    for name, members in [*sorted(by_module.items()), ("all", list(chosen))]:
        found = [fates[each.name] for each in members]
        killed = sum(fate.killed for fate in found)
        mean = sum(fate.seconds for fate in found) / max(1, len(found))
        lines.append(f"{name:34}{len(found):8}{killed:8}{len(found) - killed:10}{mean:8.1f}")
    stages = Counter(fates[each.name].stage or "survived" for each in chosen)
    lines.append("  ".join(f"{stage} {count}" for stage, count in stages.most_common()))
    lines.append("\nsurvivors:")
    for each in chosen:
        if not fates[each.name].killed:
            where = Path(each.path).relative_to(ROOT)
            lines.append(f"  {where}:{each.line} [{each.kind}]  {each.old}  ->  {each.new}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

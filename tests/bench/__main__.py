"""``make bench``: every ratio, and exit 1 when one misses its limit.

python -m tests.bench [words of the names to run]
python -m tests.bench scale [rows]              a very large publication, for its memory
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from tests.bench import scale
from tests.bench.ratio import measure


def main(words: list[str]) -> int:
    if words[:1] == ["scale"]:
        return scale.main(words[1:])
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    print(
        f"ratios of interleaved timings, median [quartiles]; {os.cpu_count()} cores,"
        f" load {os.getloadavg()[0]:.1f}, BLAS threads: {threads}"
    )
    missed = ran = 0
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        module = importlib.import_module(f"tests.bench.{path.stem}")
        with module.cases() as cases:
            for case in cases:
                if all(word in case.name for word in words):
                    result = measure(case)
                    print(result, flush=True)
                    ran += 1
                    missed += not result.kept
    print(f"{ran - missed} passed, {missed} failed")
    return int(missed > 0 or ran == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

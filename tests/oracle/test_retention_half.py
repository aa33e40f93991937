"""Below retention 1 every query brings its covariances along: answers are sound in themselves.

More on demand: ``python -m tests.oracle --noisy --count 5000 --seed 7``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from privsql.answer.outcome import Notice, Outcome, ResultColumn
from tests.oracle.perturbed import VARIANTS, perturbed_world
from tests.oracle.running import asked_always, run
from tests.oracle.sound import Noisy, both, faults, unsound
from tests.oracle.tables import World
from tests.sizes import sized

QUERIES = sized(50, 900)
PARTS = sized(2, 6)
SEED = 2027


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[World, Noisy]]]:
    folder = tmp_path_factory.mktemp("noisy")
    worlds = [perturbed_world(folder, name, SEED + i) for i, name in enumerate(VARIANTS)]
    yield both(worlds)
    for each in worlds:
        each.raw.close()


@pytest.mark.parametrize("part", range(PARTS))
def test_answers_below_retention_one_are_sound(pairs: list[tuple[World, Noisy]], part: int) -> None:
    """In parts, so that two processes can share them; two in three by ``auto``."""
    count = QUERIES // PARTS
    summary = run(pairs, count, SEED + part, shrunk=1, judge=unsound, leave=asked_always)
    print(summary)
    assert not summary.failures, "\n\n".join(map(str, [summary, *summary.failures]))
    # 1 to 3 in 100 compare a sensitive column with a thousand public values.
    assert summary.limited.total() <= count // 12


# --- the check itself ------------------------------------------------------------------


def outcome(value: float | None, *bars: float | bool | None, notice: str = "") -> Outcome:
    kinds = (pa.float64(), pa.float64(), pa.float64(), pa.bool_())
    names = ("stderr", "low", "high", "reliable")
    arrays = {n: pa.array([b], k) for n, b, k in zip(names, bars, kinds, strict=True)}
    return Outcome(
        "rows",
        (ResultColumn("n", "DOUBLE", estimate=True),),
        pa.table({"n": pa.array([value], pa.float64())}),
        {0: pa.table(arrays)},
        (Notice(notice, "1 value of 'n' has none, because"),) if notice else (),
        "inversion",
    )


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (outcome(5.0, 1.0, 3.0, 7.0, True), ""),
        (outcome(5.0, 0.0, 5.0, 5.0, True), ""),
        (outcome(5.0, 1.0, None, 7.0, True), ""),
        (outcome(5.0, None, 3.0, 7.0, True), ""),
        (outcome(NAN, 1.0, 3.0, 7.0, True), "not finite"),
        (outcome(5.0, INF, 3.0, 7.0, True), "not finite"),
        (outcome(5.0, 1.0, -INF, 7.0, True), "not finite"),
        (outcome(5.0, -1.0, 3.0, 7.0, True), "standard error below zero"),
        (outcome(5.0, 1.0, 5.1, 7.0, True), "estimate below its interval"),
        (outcome(5.0, 1.0, 3.0, 4.9, True), "estimate above its interval"),
        (outcome(5.0, None, None, None, None), "no error bars and no notice"),
        (outcome(5.0, None, None, None, None, notice="no-error"), ""),
        (outcome(5.0, None, None, None, False, notice="unreliable"), "no error bars and no notice"),
        (outcome(None, None, None, None, None), ""),
        (outcome(None, 1.0, 3.0, 7.0, True), "bars without a value"),
    ],
)
def test_what_is_not_sound_is_noticed(answer: Outcome, kind: str) -> None:
    assert [fault.kind for fault in faults(answer, 0)] == ([kind] if kind else [])

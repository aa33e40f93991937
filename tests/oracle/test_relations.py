"""Relations between answers below retention 1 hold to rounding, whichever scan form answers.

More on demand: ``python -m tests.oracle --relations --count 200 --seed 7 [--form weights]``.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.oracle.perturbed import VARIANTS, perturbed_world
from tests.oracle.relations import (
    ALIKE,
    FORMS,
    RELATIONS,
    Asked,
    Broken,
    Cell,
    Claim,
    Read,
    Reader,
    Reads,
    broken,
    tried,
)
from tests.oracle.sessions import session_class
from tests.oracle.tables import World
from tests.sizes import sized

SEED = 2028
# Settings of each relation: as many as some seconds of processor time ask.
SETTINGS = {
    "partition": 4, "spellings": 4, "adding up": 5, "beside": 5, "wrapping": 3, "renaming": 3,
    "reordering": 4,
}  # fmt: skip
TIMES = sized(1, 50)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[World]]:
    folder = tmp_path_factory.mktemp("relations")
    found = [perturbed_world(folder, name, SEED + i) for i, name in enumerate(VARIANTS)]
    yield found
    for each in found:
        each.raw.close()


@pytest.fixture(scope="module")
def readers(worlds: list[World]) -> list[Reader]:
    """Every release with every form, in an order that does not favour any."""
    pairs = [(at, form) for at in worlds for form in (None, *FORMS)]
    random.Random(SEED).shuffle(pairs)
    return [Reader(lambda at=at: opened(at), form) for at, form in pairs]  # type: ignore[misc]


def opened(at: World) -> object:
    return session_class()(at.release, tables=at.tables)


@pytest.mark.parametrize("name", RELATIONS)
def test_relations_hold(readers: list[Reader], name: str) -> None:
    found = tried(readers, [name], SETTINGS[name] * TIMES, SEED)
    print(found)
    assert not found.broken, "\n\n".join(map(str, [found, *found.broken[:5]]))
    assert found.claims[name] >= SETTINGS[name] * TIMES


# --- each relation can fail ------------------------------------------------------------


class Spoilt:
    """Answers of another, changed: the SQL on the way there, or the answer on the way back."""

    def __init__(
        self,
        honest: Reads,
        sql: Callable[[str], str] = lambda sql: sql,
        cell: Callable[[str, Cell], Cell] = lambda sql, cell: cell,
    ) -> None:
        self.honest, self.sql, self.cell = honest, sql, cell

    def read(self, sql: str) -> Read:
        found = self.honest.read(self.sql(sql))
        rows = [tuple(self.cell(sql, cell) for cell in row) for row in found.rows]
        return Read(found.names, tuple(rows))


def restless(sql: str, cell: Cell) -> Cell:
    """An estimate that depends on how it was asked for, in the eighth digit."""
    if cell.stderr is None or cell.value is None or isinstance(cell.value, str | bool):
        return cell
    return replace(cell, value=cell.value * (1 + 1e-7 * (zlib.crc32(sql.encode()) % 8)))


def wider(sql: str, cell: Cell) -> Cell:
    """A standard error that does."""
    if cell.stderr is None:
        return cell
    return replace(cell, stderr=(cell.stderr + 1e-3) * (1 + 0.01 * (zlib.crc32(sql.encode()) % 8)))


def fickle(sql: str, cell: Cell) -> Cell:
    """A reliability that does."""
    if cell.reliable is None:
        return cell
    return replace(cell, reliable=zlib.crc32(sql.encode()) % 2 == 0)


@pytest.mark.parametrize("name", RELATIONS)
def test_an_estimate_that_depends_on_its_spelling_is_caught(
    readers: list[Reader], name: str
) -> None:
    found = tried([Spoilt(readers[0], cell=restless)], [name], 3, SEED)
    assert "estimates" in {each.kind for each in found.broken}


@pytest.mark.parametrize("name", ["beside", "wrapping", "renaming", "reordering"])
@pytest.mark.parametrize("fault", sized([wider], [wider, fickle]))
def test_bars_that_depend_on_a_spelling_are_caught(
    readers: list[Reader], name: str, fault: Callable[[str, Cell], Cell]
) -> None:
    by = [Spoilt(readers[0], cell=fault)]
    assert "bars" in {each.kind for each in tried(by, [name], 5, SEED, alike="bars").broken}
    assert not tried(by, [name], 5, SEED, alike="estimates").broken


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("partition", ") IS NULL)", ") IS NOT NULL)"),
        ("partition", "COUNT_IF(NOT (", "COUNT_IF(NOT COALESCE(FALSE, "),
        # The condition inside a value forgotten, which 0.1.0 did on large tables.
        ("spellings", "SUM(CASE WHEN ", "SUM(CASE WHEN TRUE OR "),
        ("spellings", "SUM(IF(", "SUM(IF(TRUE OR "),
        ("spellings", "COUNT_IF(", "COUNT_IF(TRUE OR "),
        ("spellings", "FILTER (WHERE ", "FILTER (WHERE TRUE OR "),
        ("adding up", "SUM(", "AVG("),
    ],
)
def test_a_layer_that_misreads_is_caught(
    readers: list[Reader], name: str, old: str, new: str
) -> None:
    by = [Spoilt(readers[0], lambda sql: sql.replace(old, new))]
    assert any(each.kind == "estimates" for each in tried(by, [name], 6, SEED).broken)


# --- the rules of comparison -------------------------------------------------------------


class Fixed:
    """Answers from a table of them."""

    def __init__(self, **answers: list[Cell]) -> None:
        self.answers = answers

    def read(self, sql: str) -> Read:
        return Read(("v",), tuple((cell,) for cell in self.answers[sql]))


def judged(one: list[Cell], two: list[Cell], *, same: bool, alike: str = "bars") -> str:
    first, second = ((Asked(name, ("v",)),) for name in ("one", "two"))
    found = broken(Claim("test", first, second, same=same), Fixed(one=one, two=two), alike)
    return found.kind if isinstance(found, Broken) else ""


@pytest.mark.parametrize(
    ("one", "two", "same", "kind"),
    [
        ([Cell(5.0)], [Cell(5.0)], True, ""),
        ([Cell(5.0)], [Cell(5.0 + 1e-8)], True, "estimates"),
        ([Cell(5.0, 100.0)], [Cell(5.0 + 1e-8, 100.0)], True, ""),
        ([Cell(5.0, 1.0)], [Cell(5.0, 1.1)], True, "bars"),
        ([Cell(5.0, 1.0, 3.0, 7.0, True)], [Cell(5.0, 1.0, 3.0, 7.1, True)], True, "bars"),
        ([Cell(5.0, 1.0, None, 7.0, True)], [Cell(5.0, 1.0, 3.0, 7.0, True)], True, "bars"),
        ([Cell(5.0, 1.0, 3.0, 7.0, True)], [Cell(5.0, 1.0, 3.0, 7.0, False)], True, "bars"),
        ([Cell(None)], [Cell(0.0)], True, "estimates"),
        ([Cell(None)], [Cell(0.0)], False, ""),
        ([Cell(float("nan"))], [Cell(float("nan"))], True, ""),
        ([Cell(5.0)], [Cell(5.0), Cell(0.0)], True, "rows"),
        ([Cell(5.0), Cell(1.0)], [Cell(6.0)], False, ""),
        ([Cell(5.0), Cell(1.1)], [Cell(6.0)], False, "estimates"),
        ([Cell(Decimal("0.1")), Cell(Decimal("0.2"))], [Cell(Decimal("0.3"))], False, ""),
    ],
)
def test_rules_of_comparison(one: list[Cell], two: list[Cell], same: bool, kind: str) -> None:
    assert judged(one, two, same=same) == kind


def test_bars_are_compared_only_where_that_is_asked_for() -> None:
    assert judged([Cell(5.0, 1.0)], [Cell(5.0, 1.1)], same=True, alike="estimates") == ""


def test_a_form_is_set_before_the_first_question() -> None:
    class Session:
        form: str | None = None

    made = Session()
    assert Reader(lambda: made, "weights").session is made
    assert made.form == "weights"
    assert set(ALIKE) <= set(RELATIONS)

from __future__ import annotations

import inspect

import duckdb
import pytest

from privsql import errors
from privsql.errors import Error, Place, interruptible

FAMILY = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Error)
]


def test_an_error_prints_code_place_and_hint():
    text = "SELECT city\nFROM visits WHERE illness = 'flu'"
    start = text.index("illness")
    error = errors.NotSupportedError(
        "this cannot be answered",
        hint="ask for a count instead",
        place=Place(text, start, start + len("illness = 'flu'")),
    )
    assert str(error) == (
        "ERROR 0A000 [not-supported]: this cannot be answered\n"
        "LINE 2: FROM visits WHERE illness = 'flu'\n"
        "                          ^^^^^^^^^^^^^^^\n"
        "HINT: ask for a count instead"
    )


def test_a_caret_stays_under_its_word_after_a_tab():
    shown = str(Place("a\tbad", 2, 5)).split("\n")
    assert shown[1].endswith("\t^^^")
    assert shown[1].index("\t") == shown[0].index("\t")


def test_a_caret_never_runs_past_its_line():
    shown = str(Place("abc\ndef", 1, 7)).split("\n")
    assert shown == ["LINE 1: abc", "         ^^"]


@pytest.mark.parametrize("kind", FAMILY)
def test_every_error_is_of_pep_249s_family_and_has_a_code(kind):
    assert issubclass(kind, errors.Error)
    assert len(kind.sqlstate) == 5
    assert kind.code == kind.code.lower()
    assert str(kind("x")).startswith(f"ERROR {kind.sqlstate} [{kind.code}]: x")


def test_the_family_of_pep_249_is_complete():
    tree = {
        "InterfaceError": "Error",
        "DatabaseError": "Error",
        "DataError": "DatabaseError",
        "OperationalError": "DatabaseError",
        "IntegrityError": "DatabaseError",
        "InternalError": "DatabaseError",
        "ProgrammingError": "DatabaseError",
        "NotSupportedError": "DatabaseError",
    }
    for child, parent in tree.items():
        assert getattr(errors, child).__base__ is getattr(errors, parent)
    assert issubclass(errors.Warning, Exception)


def test_a_long_line_is_shown_in_part() -> None:
    shown = str(Place("x" * 10_000 + "HERE" + "y" * 10_000, 10_000, 10_004))
    line, caret = shown.split("\n")
    assert len(line) < 500
    assert line[caret.index("^") : caret.rindex("^") + 1] == "HERE"


@pytest.mark.parametrize(
    "problem", [RuntimeError("Query interrupted"), duckdb.InterruptException("INTERRUPT Error")]
)
def test_duckdbs_words_for_ctrl_c_are_pythons(problem):
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise problem


def test_other_errors_are_not_taken_for_ctrl_c():
    with pytest.raises(RuntimeError, match="something else"), interruptible():
        raise RuntimeError("something else")

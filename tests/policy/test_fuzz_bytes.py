"""Texts that nobody would write: whatever comes in, an answer or an error of ours comes out.

Seeds are fixed and the time is bounded, so a run is short and nearly the same each time; a
text that fails is printed as it stands, to be kept in ``KNOWN``.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from privsql.errors import Error, InternalError
from privsql.fronts.dbapi.connection import Connection
from privsql.policy.limits import Limits
from privsql.session.session import Session
from tests.sizes import sized
from tests.sql.clinic import publish
from tests.sql.constructs import CONSTRUCTS

# Seconds of processor time for each family.
BUDGET = sized(1.0, 30.0)

PUBLIC = {
    "illness": pa.table({"disease": ["flu", "hiv", "none"], "class": ["virus", "virus", "well"]}),
    "jobs": pa.table({"job": ["eng", "law", "med"], "pay": [3, 2, 1]}),
    "visits": pa.table({"job": ["eng", "eng", "law"], "day": [1, 2, 1]}),
}

OURS = [
    "SELECT WITH RECONSTRUCTION OPTIONS (estimator = 'iterative') COUNT(*) FROM patients",
    "EXPLAIN RECONSTRUCTION SELECT AVG(age) FROM patients",
    "SET privsql.confidence_level = 0.9",
    "RESET privsql.estimator",
    "SHOW privsql.error_bars",
]
REAL = [*OURS, *(one.sql for one in CONSTRUCTS)]

PIECES = [
    *("'", '"', "`", "''", "$$", "$a$", "/*", "*/", "--", "\n", ";", "(", ")", "[", "]", "{", "}"),
    *("\0", "\ud800", "\udfff", "\u202e", "\ufeff", "é", "日本", "\U0001f600", "\x1a", "\\", "\\'"),
    *("e'", "b'", "x'", "r'", "u&'", "?", "$1", ":a", "@", "#1", "::", "->", "=>", ":=", "**", "!"),
    *("0x", "1e", "1_0", ".", "..", "1.", ".1", "%", "^", "~", "|", "||", "&", "<", "<>", "<=>"),
    *("NULL", "NOT", "CASE", "END", "WHEN", "OVER", "FILTER", "WITHIN GROUP", "AS", "FROM", "BY"),
    *("WITH", "RECONSTRUCTION", "OPTIONS", "EXPLAIN", "SET", "SHOW", "RESET", "SELECT", "UNION"),
    *("IN", "LIKE", "ESCAPE", "BETWEEN", "AND", "OR", "IS", "DISTINCT", "EXISTS", "ANY", "ALL"),
    *("patients", "age", "disease", "job", "privsql.", "COUNT(*)", "AVG(age)", "x -> x", "*", ","),
    *("INTERVAL", "DATE", "TIMESTAMP", "QUALIFY", "PIVOT", "LATERAL", "USING", "ROLLUP", "STRUCT"),
]

KNOWN = [
    "",
    ";",
    "\0",
    "\ud800",
    "SELECT '\ud800'",
    'SELECT "\ud800" FROM patients',
    "SELECT 1 /*",
    "SELECT 'x",
    "SELECT $$",
    "SET",
    "SET =",
    "SET privsql.",
    "SET privsql.estimator TO",
    "RESET x",
    "SHOW x.y",
    "EXPLAIN",
    "EXPLAIN EXPLAIN SELECT 1",
    "SELECT WITH RECONSTRUCTION OPTIONS (",
    "SELECT WITH RECONSTRUCTION OPTIONS ()",
    "SELECT WITH RECONSTRUCTION OPTIONS (,) 1",
    "SELECT WITH RECONSTRUCTION OPTIONS (estimator) 1",
    "SELECT job, COUNT(*) FROM patients WHERE disease = 'flu' GROUP BY job HAVING COUNT(*) > 1e9",
]


def noise(rng: random.Random) -> str:
    """Bytes, taken for text in one of the ways that happen."""
    data = rng.randbytes(rng.randint(0, 120))
    how = rng.choice(["latin-1", "utf-8", "ascii"])
    return data.decode(how, rng.choice(["replace", "surrogateescape", "ignore"]))


def mutated(rng: random.Random) -> str:
    """A real statement with parts taken out, doubled, moved, or replaced."""
    text = rng.choice(REAL)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        i, j = sorted(rng.randint(0, len(text)) for _ in range(2))
        piece = rng.choice([*PIECES, text[i:j], rng.choice(REAL)[i:j]])
        kind = rng.randint(0, 4)
        if kind == 0:
            text = text[:i] + text[j:]
        elif kind == 1:
            text = text[:i] + piece + text[i:]
        elif kind == 2:
            text = text[:i] + f" {piece} " + text[min(j, i + 4) :]
        elif kind == 3 and text:
            i = min(i, len(text) - 1)
            text = text[:i] + chr(ord(text[i]) ^ (1 << rng.randint(0, 7))) + text[i + 1 :]
        else:
            words = text.split(" ")
            rng.shuffle(words)
            text = " ".join(words)
    return text


def pieced(rng: random.Random) -> str:
    """Words and signs in any order."""
    return rng.choice(["", "SELECT ", "SELECT COUNT(*) FROM patients WHERE "]) + rng.choice(
        ["", " "]
    ).join(rng.choices(PIECES, k=rng.randint(1, 25)))


_TOKEN = re.compile(r"'[^']*'|\w+|[^\w\s]+|\s+")


def _shape(token: str) -> str:
    if token.startswith("'"):
        return "text"
    if token.isdigit():
        return "number"
    return "word" if token.isidentifier() else "sign"


SHAPES: dict[str, list[str]] = {"number": ["0", "1e308", "NULL", "99999999999999999999", "-1"]}
for _token in _TOKEN.findall(" ".join(REAL)):
    if not _token.isspace():
        SHAPES.setdefault(_shape(_token), []).append(_token)


def swapped(rng: random.Random) -> str:
    """A real statement in which words, numbers or signs are those of other ones."""
    tokens = _TOKEN.findall(rng.choice(REAL))
    spots = [i for i, token in enumerate(tokens) if not token.isspace()]
    for i in rng.sample(spots, min(len(spots), rng.choice([1, 1, 2, 3]))):
        tokens[i] = rng.choice(SHAPES[_shape(tokens[i])])
    return "".join(tokens)


FAMILIES = {"swapped": swapped, "noise": noise, "mutated": mutated, "pieced": pieced}


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    made = Session(
        publish(tmp_path_factory.mktemp("fuzz"), 0.4), tables=PUBLIC, limits=Limits(seconds=5)
    )
    yield made
    made.close()


def texts(family: str) -> Iterator[str]:
    """Texts until the time is up; the seed says which."""
    rng = random.Random(f"privsql {family}")
    begun = time.process_time()
    while time.process_time() < begun + BUDGET:
        yield FAMILIES[family](rng)


def check(session: Session, text: str, use: int) -> None:
    """Ask in one of the ways that there are; a bug, or anything but our errors, is a failure."""
    connection = Connection(session)
    ways = (
        session.run,
        session.run,
        session.explain,
        session.expand,
        connection.execute,
        lambda sql: str(connection.sql(sql)),
        lambda sql: session.run(sql, [1, "x"]),
        session.statements,
    )
    try:
        ways[use % len(ways)](text)
    except InternalError as problem:
        pytest.fail(f"a bug at {text!r}: {problem}")
    except Error as problem:
        str(problem).encode()  # it can be printed and sent
    except Exception as problem:
        raise AssertionError(
            f"{type(problem).__name__} at use {use % len(ways)}: {text!r}"
        ) from problem


@pytest.mark.parametrize("family", [*FAMILIES])
def test_only_our_errors_come_out(session, family):
    tried = 0
    for tried, text in enumerate(texts(family), 1):
        check(session, text, tried)
    assert tried > 20
    assert session.run("SELECT COUNT(*) FROM patients").table.column(0)[0].as_py() == 4000


@pytest.mark.parametrize("text", KNOWN)
def test_texts_that_were_trouble_or_might_be(session, text):
    for use in range(8):
        check(session, text, use)


@pytest.mark.parametrize("wrong", [None, 3, b"SELECT 1", ["SELECT 1"]])
def test_only_texts_are_statements(session, wrong):
    for use in (session.run, session.explain, session.expand, session.statements):
        with pytest.raises(Error, match="a statement must be a str"):
            use(wrong)

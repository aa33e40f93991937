"""A release as a folder of Parquet against the same as a file: questions never asked before."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import privsql
from privsql.release.shapes import as_folder
from privsql.session.session import Session
from tests.bench.ratio import Case
from tests.bench.scale import SPEC, made

ROWS = 3_000_000
LIMIT = 1.5

# Of people: one condition, three, groups.  {} is a number that no question had before, so that
# nothing is remembered.
QUESTIONS = {
    "one condition": "SELECT COUNT(*) + {} FROM people WHERE illness = 'illness 3'",
    "three conditions": "SELECT COUNT(*) + {} FROM people WHERE illness = 'illness 3' AND age < 40"
    " AND visits > 10",
    "groups": "SELECT job, AVG(age) + {} FROM people WHERE illness <> 'illness 3' GROUP BY job",
    "a public condition": "SELECT COUNT(*) + {} FROM people WHERE city = 'city 7' AND age < 40",
}


@contextmanager
def cases() -> Iterator[list[Case]]:
    """One case a question."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        spec = place / "spec.toml"
        spec.write_text(SPEC.format(illnesses=", ".join(f'"illness {i}"' for i in range(12))))
        file, folder = place / "people.duckdb", place / "people"
        privsql.publish(str(made(place, ROWS)), file, spec=spec, seed=1)
        as_folder(file, folder)
        turns = count()

        def ask(session: Session, question: str) -> None:
            session.run(question.format(next(turns)))

        with closing(Session(file)) as one, closing(Session(folder)) as other:
            yield [
                Case(
                    f"folder of Parquet, {name}, to the file",
                    partial(ask, other, question),
                    partial(ask, one, question),
                    LIMIT,
                    cpu=True,
                )
                for name, question in QUESTIONS.items()
            ]

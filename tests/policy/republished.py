"""A small table that is published again and again, and questions about it."""

from __future__ import annotations

from pathlib import Path

import duckdb

import privsql
from privsql.errors import Error
from privsql.policy.history import History
from privsql.publish.append.append import append
from privsql.publish.append.local import perturb_file
from privsql.publish.keys.randomness import Seeded
from privsql.release.spec import parse_spec
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.specs import measure, public, sensitive, spec

# Six groups of sixty people; those of 'c', 'x' are the group that is asked about.
ROWS = """
    SELECT (['a', 'b', 'c'])[1 + i % 3] AS town, (['x', 'y'])[1 + (i // 3) % 2] AS shift,
           (10 + (i * 7) % 50)::INTEGER AS pay,
           (['flu', 'none'])[1 + (hash(i * 5) % 2)::INTEGER] AS ill
    FROM range(360) AS r(i)
"""
GROUP = "town = 'c' AND shift = 'x'"
FLU = "FROM wards WHERE ill = 'flu'"
TOTAL = f"SELECT COUNT(*) {FLU}"
WITHOUT = f"{TOTAL} AND NOT ({GROUP})"
CHEAP = f"{TOTAL} AND pay < 40"
CHEAP_WITHOUT = f"{CHEAP} AND NOT ({GROUP})"


def publish(folder: Path, rows: str = ROWS, name: str = "pay", more: str = "") -> Path:
    """Publish rows, in place of what was there."""
    source, release = folder / "wards.parquet", folder / "wards.duckdb"
    with duckdb.connect() as con:
        con.sql(rows).write_parquet(str(source))
    text = spec(
        "wards",
        public("town"),
        public("shift"),
        measure(name),
        sensitive("ill", 0.8, ["flu", "none"], accept_epsilon=True),
        more=f'[groups]\nmerge = "none"\n[policy]\npersonal_groups = "refuse"\n{more}',
    )
    (folder / "wards.toml").write_text(text, encoding="utf-8")
    privsql.publish(str(source), release, spec=folder / "wards.toml", force=True)
    return release


def join(release: Path, rows: str) -> int:
    """Perturb a batch and append it; how many rows it had."""
    source, batch = release.with_name("rows.parquet"), release.with_name("batch.parquet")
    with duckdb.connect() as con:
        con.sql(rows).write_parquet(str(source))
    rules = parse_spec(release.with_suffix(".toml").read_text(encoding="utf-8"))
    batch.unlink(missing_ok=True)
    perturb_file(rules, source, batch, Seeded(5))
    return append(release, batch)


def ask(release: Path, history: Path | History, *questions: str, user: str = "ann") -> list[str]:
    """Answer as a server that has just started; the code of each refusal, or nothing."""
    kept = history if isinstance(history, History) else History(history)
    session = Session(release, served=Served(user, kept))
    found = []
    for question in questions:
        try:
            session.run(question)
            found.append("")
        except Error as error:
            found.append(error.code)
    session.close()
    if not isinstance(history, History):
        kept.close()
    return found

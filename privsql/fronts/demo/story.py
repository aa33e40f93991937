"""The demo in nine steps, from raw rows to suggested commands."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from privsql.errors import Error
from privsql.fronts.demo import questions as q
from privsql.fronts.demo.folder import MARK, making
from privsql.fronts.demo.recipe import DISEASES, SMOKER
from privsql.fronts.demo.screen import INDENT, WIDTH, Screen, wrapped

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pyarrow as pa

    from privsql.fronts.dbapi.connection import Connection
    from privsql.fronts.demo.compared import Compared
    from privsql.release.manifest import Manifest

Progress = Callable[[], AbstractContextManager[Callable[[int], None]]]


def tell(folder: Path, screen: Screen, progress: Progress, *, rows: int = q.ROWS) -> None:
    """Run the demo and leave its files in the folder; on failure nothing is left."""
    import duckdb

    from privsql.fronts.dbapi.connection import connect

    with making(folder) as made:
        screen.say("privsql demo: no single row can be trusted, and answers still can.", "bold")
        table = _draw(made, rows)
        with closing(duckdb.connect()) as raw:
            raw.register("patients", table)
            _facts(screen, raw, rows)
            _spec(screen, made)
            manifest = _publish(screen, made, progress)
            with closing(connect(made / q.RELEASE)) as con:
                _row(screen, made, manifest, con)
                few = _compare(screen, raw, con)
                _refusal(screen, con)
                _explain(screen, con)
                _audit(screen, made)
                _picture(screen, made, few, raw, con)
        _next(screen, made, folder)
    there = sorted(path.name for path in folder.iterdir())
    screen.say(f"All of it is in {folder}: {', '.join(there)}.", "bold")


def _draw(made: Path, rows: int) -> pa.Table:
    import numpy as np
    import pyarrow.parquet as pq

    from privsql.fronts.demo.recipe import clinic

    table = clinic(rows, np.random.default_rng(q.TABLE_SEED))
    pq.write_table(table, made / q.SOURCE)
    return table


def _facts(screen: Screen, raw: duckdb.DuckDBPyConnection, rows: int) -> None:
    screen.step("What the publisher knows")
    screen.say(f"{q.SOURCE} has {rows:,} invented patients, one per row. Three of them:")
    found = raw.execute(
        "SELECT patient_id AS id, sex, age, district, job, smoker, disease, cost, visited"
        " FROM patients ORDER BY patient_id LIMIT 3"
    )
    names = [column[0] for column in found.description or ()]
    screen.table([names, *([str(cell) for cell in row] for row in found.fetchall())], "><><<<<><")
    screen.say("The true figures. Outside of this demo only the publisher sees them:")
    counts = raw.execute(
        "SELECT disease, COUNT(*), COUNT(*) / SUM(COUNT(*)) OVER (),"
        " COUNT(*) FILTER (WHERE smoker = 'yes') / COUNT(*), AVG(cost)"
        " FROM patients GROUP BY disease ORDER BY disease"
    ).fetchall()
    screen.table(
        [
            ("disease", "patients", "of all", "smokers among them", "mean cost"),
            *((d, f"{n:,}", f"{s:.1%}", f"{y:.0%}", f"{c:,.0f}") for d, n, s, y, c in counts),
        ],
        "<>>>>",
    )


def _spec(screen: Screen, made: Path) -> None:
    (made / q.SPEC).write_text(q.SPEC_TEXT, encoding="utf-8")
    screen.step(f"The spec: the publisher's choices ({q.SPEC}, shortened)")
    lines = q.SPEC_TEXT.splitlines()
    start = lines.index("[columns.smoker]")
    screen.quote("\n".join(lines[:4]), "green")
    screen.quote("...  sex, age, district, job, cost and visited are public  ...", "dim", near=True)
    screen.quote("\n".join(lines[start:]), "green", near=True)


def _publish(screen: Screen, made: Path, progress: Progress) -> Manifest:
    from privsql.publish.job import publish

    screen.step(f"Publish: privsql publish {q.SPEC} -o {q.RELEASE} --seed {q.PUBLISH_SEED}")
    with progress() as shown:
        report = publish(
            None, made / q.RELEASE, spec=made / q.SPEC, seed=q.PUBLISH_SEED, progress=shown
        )
    privacy = report.manifest.privacy
    screen.say(
        f"epsilon {privacy.epsilon:.2f} for all published values of a {privacy.unit} together:"
        f" whatever someone believed about a person before, the odds change by a factor of at"
        f" most {math.exp(privacy.epsilon):.0f}.",
        "bold",
    )
    # What the report says, without its first line, which names a folder that will not stay.
    screen.quote(wrapped("\n".join(str(report).splitlines()[1:])))
    screen.say(
        "It says UNSAFE because of the seed. The seed makes this demo repeatable, but anyone who"
        " knows it can undo every draw. These patients are invented; NEVER publish real people"
        " with a seed. Without one the epsilon above is what the release promises.",
        "yellow",
    )
    return report.manifest


def _row(screen: Screen, made: Path, manifest: Manifest, con: Connection) -> None:
    from privsql.fronts.demo.worth import worth
    from privsql.release.store import open_release

    screen.step("What one published row reveals")
    names = ("sex", "age", "district", "job", "smoker", "disease", "cost", "visited")
    with open_release(made / q.RELEASE).connection() as file:
        row = file.execute(
            "SELECT sex, age, district, job, smoker, disease, cost, visited FROM patients"
            " WHERE disease = 'hiv' ORDER BY ALL LIMIT 1"
        ).fetchone()
        claims = dict(
            file.execute("SELECT disease, COUNT(*) FROM patients GROUP BY disease").fetchall()
        )
    if row is None:
        raise AssertionError("a release of this size has every value")
    screen.say("Anyone who has the file can read its rows. One of them says hiv:")
    screen.table([names, [str(cell) for cell in row]], "<><<<<><")
    matrices = [_matrix(manifest, "smoker"), _matrix(manifest, "disease")]
    prior = _prior(con)
    factor = math.exp(manifest.privacy.epsilon)
    said = (SMOKER.index(row[4]), DISEASES.index("hiv"))
    other = (SMOKER.index(row[4]), DISEASES.index("none"))
    hiv, none = worth(prior, matrices, said), worth(prior, matrices, other)
    screen.say(
        f"Does this patient have hiv? Of all patients {hiv.prior:.1%} have it, reconstructed from"
        " the"
        f" release; of those whose row says hiv and smoker {row[4]}, {hiv.posterior:.1%}. So this"
        f" row is wrong about hiv with {1 - hiv.posterior:.0%} probability.",
        "bold",
    )
    screen.say(
        f"{claims['hiv']:,} rows say hiv, where about {hiv.prior * manifest.rows:,.0f} patients"
        " have it. Someone who knows more about a person starts from another prior, and the row"
        f" changes the odds by that factor of {factor:.0f} at most. A good guess gets better:"
        f" {none.prior:.0%} have no disease, and of rows that say none and smoker {row[4]},"
        f" {none.posterior:.0%} are right."
    )


def _matrix(manifest: Manifest, name: str) -> np.ndarray:
    return next(each.channel.matrix for each in manifest.sensitive if each.name == name)


def _prior(con: Connection) -> np.ndarray:
    """How many patients have each pair of smoker and disease, reconstructed; none is negative."""
    import numpy as np

    found = np.zeros((len(SMOKER), len(DISEASES)))
    for smoker, disease, count in con.execute(q.PRIOR).fetchall():
        found[SMOKER.index(smoker), DISEASES.index(disease)] = count
    return found


def _compare(
    screen: Screen, raw: duckdb.DuckDBPyConnection, con: Connection
) -> tuple[Compared, ...]:
    from privsql.fronts.demo.compared import compare, held

    screen.step("Three queries: true values and estimates side by side")
    screen.say("The same SQL, run on the raw table and on the release.")
    every: list[Compared] = []
    for question in q.QUESTIONS:
        found = compare(question, raw, con)
        every += found
        screen.say(question.asked, "bold")
        screen.quote(question.sql, "green", near=True)
        digits = question.digits
        screen.table(
            [
                ("", "truth", "estimate", "95% interval", "contains truth"),
                *(
                    (
                        each.label or "all",
                        f"{each.truth:,.{digits}f}",
                        f"{each.estimate:,.{digits}f} ± {each.error:,.{digits}f}",
                        f"{each.low:,.{digits}f} to {each.high:,.{digits}f}",
                        "yes" if each.inside else "NO",
                    )
                    for each in found
                ),
            ],
            "<>>><",
        )
    screen.say(
        f"{held(every)} of {len(every)} intervals contain the true value. One in twenty is"
        " expected not to: that is what 95% means."
    )
    return tuple(every)


def _refusal(screen: Screen, con: Connection) -> None:
    from privsql.fronts.shell.display import Display, problem

    screen.step("A query that is refused")
    screen.say("All public values of a few people at once select one personal group:")
    screen.quote(q.PERSONAL, "green")
    try:
        con.sql(q.PERSONAL)
    except Error as refused:
        screen.quote(problem(refused, Display(width=WIDTH - len(INDENT))), "red")
    else:
        raise AssertionError("a query for one personal group was answered")


def _explain(screen: Screen, con: Connection) -> None:
    screen.step("How an answer is computed")
    screen.quote(f"EXPLAIN RECONSTRUCTION\n{q.BY_DISTRICT.sql}", "green")
    screen.quote(wrapped(con.explain(q.BY_DISTRICT.sql).rstrip()), "dim")


def _audit(screen: Screen, made: Path) -> None:
    from privsql.audit.job import audit
    from privsql.audit.report.text import summary_text

    screen.step(f"The audit: privsql audit {q.RELEASE} --raw {q.SOURCE}")
    report = audit(made / q.RELEASE, raw=made / q.SOURCE)
    # It is made in a folder that will not stay.
    screen.quote(summary_text(replace(report, release=q.RELEASE), WIDTH - len(INDENT)))
    screen.say(
        "A red light is a reason not to give this file away: it was drawn from a seed, so that"
        " everybody's demo is the same, and exact costs and dates are public, so that they can be"
        " added up. The rest of the audit has the figures and every criterion."
    )


def _picture(
    screen: Screen,
    made: Path,
    few: tuple[Compared, ...],
    raw: duckdb.DuckDBPyConnection,
    con: Connection,
) -> None:
    from privsql.answer.export import MissingExtraError
    from privsql.fronts.demo.compared import compare, held
    from privsql.fronts.demo.picture import draw

    many = compare(q.CELLS, raw, con)
    named = [each for each in few if each.label]
    try:
        draw(made / q.PICTURE, named, many)
    except MissingExtraError as missing:
        screen.say(f"No picture: {missing.reason}. {missing.hint} brings it.", "yellow")
    else:
        screen.say(
            f"{q.PICTURE} shows estimates against the truth, also for every disease in every"
            f" district: {held(many)} of {len(many)} intervals contain the truth."
        )


def _next(screen: Screen, made: Path, folder: Path) -> None:
    screen.step("What to type next")
    screen.quote("\n".join([*_on_path(), f"cd {shlex.quote(str(folder))}"]), "green")
    for each in q.NEXT:
        screen.quote(f"# {each.what}", "dim", near=True)
        screen.quote(each.typed, "green", near=True)
    text = "\n".join(f"# {each.what}\n{each.typed}" for each in q.NEXT)
    (made / q.README).write_text(
        f"{MARK}\n\n{q.SOURCE}: {q.ROWS:,} invented patients\n{q.SPEC}: the spec\n"
        f"{q.RELEASE}: the release, drawn from a seed; for real people, never give one\n"
        f"{q.PICTURE}: estimates against the truth\n\nWhat to type:\n\n{text}\n",
        encoding="utf-8",
    )


def _on_path() -> list[str]:
    """What a shell needs to find the command, where it does not yet."""
    beside = Path(sys.executable).parent
    if shutil.which("privsql") is not None or not (beside / "privsql").exists():
        return []
    return [f'export PATH={shlex.quote(str(beside))}:"$PATH"']

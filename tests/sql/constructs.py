"""The list of SQL constructs with their verdicts.

The page ``docs/sql.md`` is written from the table in ``tests/cases/constructs.list``, and a test
asks each example of a small release and compares the verdict with what happens, so neither can say
anything else.  A line of the table says ``construct -> verdict code: remark``; the indented lines
below it are the example.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "cases" / "constructs.list"

VERDICTS = {
    "answered": "an estimate (DOUBLE, not rounded) with error bars",
    "no-bars": "an estimate without an error: its bars are NULL, and a notice says so",
    "exact": "needs no reconstruction: DuckDB's own answer and type, error zero",
    "domain": "read from the public domain, not from rows; a notice says so",
    "refused": "an error with the code shown, its position in the text, and a hint",
}

# Values for the placeholders of examples.
PARAMETERS: tuple[object, ...] = ("flu", 30)


@dataclass(frozen=True)
class Construct:
    """A construct, an example of it, and what becomes of it."""

    topic: str
    what: str
    sql: str
    verdict: str
    code: str = ""  # of the error
    remark: str = ""

    @property
    def parameters(self) -> tuple[object, ...]:
        """Values for the placeholders of the example."""
        return PARAMETERS if "?" in self.sql else ()


def read(text: str) -> tuple[Construct, ...]:
    r"""Read a table.

    >>> read("## Sums\nSUM -> refused nothing: not yet\n    SELECT SUM(x)\n    FROM t\n")
    (Construct(topic='Sums', what='SUM', sql='SELECT SUM(x) FROM t', verdict='refused',
    code='nothing', remark='not yet'),)
    """
    found: list[Construct] = []
    topic = head = ""
    example: list[str] = []

    def close() -> None:
        if head:
            what, _, said = head.partition(" -> ")
            verdict, _, remark = said.partition(": ")
            kind, _, code = verdict.partition(" ")
            found.append(Construct(topic, what, " ".join(example), kind, code, remark))
        example.clear()

    for line in text.splitlines():
        if line.startswith("    "):
            example.append(line.strip())
        elif line.startswith("## "):
            close()
            topic, head = line.removeprefix("## "), ""
        elif line:
            close()
            head = line
    close()
    return tuple(found)


CONSTRUCTS = read(TABLE.read_text(encoding="utf-8"))


def page() -> str:
    """The document that shows the table."""
    lines = [
        "# SQL, construct by construct",
        "",
        "How each SQL construct is answered over a release. `patients` is the published table;"
        " `job`,",
        "`gender`, `favourite` and `cost` are public, `disease`, `age` and `seen` sensitive.",
        "`illness` and `jobs` are public tables with one row per key, `visits` has several.",
        "",
        "| verdict | meaning |",
        "|---|---|",
        *(f"| {name} | {meaning} |" for name, meaning in VERDICTS.items()),
        "",
        "The code of a refusal says why: `personal-group`, `difference` and `rows` protect people,",
        "`not-estimable` is a figure that perturbed rows do not tell, `too-large` is about size,",
        "and `unsupported` a construct that is not answered, or not yet.",
        "",
        "Every example is run by the tests and its verdict checked. Anything not",
        "supported is refused: every number returned is reconstructed or exact.",
        "",
        "Answers and intervals are about the table *as rounded to the grids* of its sensitive",
        "columns. A notice says which condition was answered where a constant lies between two",
        "points of a grid, and that values were rounded where the step is coarser than the type.",
        "",
        "A name that is both an alias and a column means the column in WHERE, GROUP BY, QUALIFY"
        " and",
        "within aggregates, and the alias in HAVING, unless the column is a key, and in ORDER BY",
        "where the name stands alone, as in DuckDB.",
        "",
        "A sub-query beside published rows, or an answer joined with them, must be exact: over"
        " public",
        "tables and public columns of the published table. It is asked once, before the scan, and"
        " its",
        "answer of at most 20,000 values takes its place; so it selects rows as any public"
        " condition",
        "does, and is judged as one. A row cannot be compared with an estimate: ask for that"
        " first.",
        "",
        "COUNT(DISTINCT u) of public values u under a sensitive condition or group multiplies",
        "over the rows of each value, so its error grows like a power of them. Where it is larger",
        "than the number of distinct values, a single answer is refused (`distinct-error`) and a",
        "cell of a GROUP BY is NULL with a notice. Releases with sampled rows, with columns",
        "perturbed by `identity`, `swap` or `decoy`, or with several rows a person are refused",
        "(`dependent-rows`). It has no covariance with other estimates: arithmetic over both has",
        "no error bar, and neither have totals over the groups of a sensitive column. A total row",
        "of ROLLUP counts its own distinct values. The likelihood (`iterative`) has none: it is",
        "inverted.",
    ]
    for topic in dict.fromkeys(one.topic for one in CONSTRUCTS):
        lines += ["", f"## {topic}", "", "| construct | example | verdict |", "|---|---|---|"]
        lines += [_row(one) for one in CONSTRUCTS if one.topic == topic]
    return "\n".join(lines) + "\n"


def _row(one: Construct) -> str:
    verdict = f"{one.verdict} `{one.code}`" if one.code else one.verdict
    cells = (one.what, f"`{one.sql}`", f"{verdict}: {one.remark}" if one.remark else verdict)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

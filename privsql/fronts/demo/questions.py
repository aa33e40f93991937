"""Texts of the demo: its spec, its queries and the commands that it suggests."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

ROWS = 300_000
# One for the table, one for the draws.  A seed is safe here because nobody in the table lives.
TABLE_SEED = PUBLISH_SEED = 1

SOURCE = "clinic.parquet"
SPEC = "clinic.toml"
RELEASE = "clinic.duckdb"
PICTURE = "demo.png"
README = "README.txt"
AGAIN = "again.duckdb"  # made by a command that the demo suggests


SPEC_TEXT = resources.files(__package__).joinpath(SPEC).read_text("utf-8")


@dataclass(frozen=True)
class Question:
    """A question in words and in SQL; the last column of its answer is a number."""

    asked: str
    sql: str
    digits: int = 0  # to show behind the point


BY_DISTRICT = Question(
    "How many have diabetes, district by district?",
    "SELECT district, COUNT(*) AS n FROM patients\n"
    "WHERE disease = 'diabetes' GROUP BY district ORDER BY district",
)
TWO = Question(
    "How many smoke and have COPD? Both conditions are perturbed.",
    "SELECT COUNT(*) AS n FROM patients\nWHERE disease = 'copd' AND smoker = 'yes'",
)
MEAN = Question(
    "What does a visit for diabetes cost, in euros?",
    "SELECT AVG(cost) AS euros FROM patients\nWHERE disease = 'diabetes'",
    digits=1,
)
QUESTIONS = (BY_DISTRICT, TWO, MEAN)

# Every cell of it is a point of the picture.
CELLS = Question(
    "Every disease in every district",
    "SELECT district || ', ' || disease AS cell, n FROM (\n"
    "SELECT district, disease, COUNT(*) AS n FROM patients GROUP BY district, disease)\n"
    "ORDER BY cell",
)

PRIOR = (
    "SELECT WITH RECONSTRUCTION OPTIONS (estimator = 'iterative')\n"
    "smoker, disease, COUNT(*) AS n FROM patients GROUP BY smoker, disease"
)

PERSONAL = (
    "SELECT COUNT(*) FROM patients\n"
    "WHERE sex = 'F' AND age = 40 AND district = 'hills'\n"
    "  AND job = 'teaching' AND disease = 'hiv'"
)


@dataclass(frozen=True)
class Command:
    """A command that works in the folder of the demo, and what it does."""

    what: str
    typed: str


def _asking(verb: str, sql: str) -> str:
    return f'privsql {verb} {RELEASE} "\n  {sql}"'


NEXT = (
    Command(
        "ask",
        _asking(
            "query",
            "SELECT job, COUNT(*) AS smokers FROM patients\n  WHERE smoker = 'yes' GROUP BY job",
        ),
    ),
    Command(
        "see how an answer is computed",
        _asking("explain", "SELECT AVG(cost) FROM patients WHERE smoker = 'yes'"),
    ),
    Command("query interactively, with completion", f"privsql shell {RELEASE}"),
    Command("what the release reveals", f"privsql audit {RELEASE} --raw {SOURCE}"),
    Command("publish it yourself, without a seed", f"privsql publish {SPEC} -o {AGAIN}"),
    Command("a starter spec for a table of your own", f"privsql init {SOURCE}"),
    Command("let BI tools connect", "privsql serve --help"),
)

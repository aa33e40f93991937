"""Every key of a spec: what the parser knows, and what docs/spec.md says.

One list serves both, so that a key cannot be read without being documented.  ``example`` is a
line of TOML as it stands in the key's table; ``beside`` holds lines that it needs there.

>>> [key.name for key in KEYS if key.table == "policy"]
['personal_groups', 'min_rows', 'differences', 'rows', 'leverage', 'always']
"""

from __future__ import annotations

from dataclasses import dataclass

MECHANISM = 'mechanism = "uniform"'
WORDS = 'domain = ["flu", "hiv", "none"]'
RETENTION = "retention = 0.3"


@dataclass(frozen=True)
class Key:
    """A key: where it stands, what it takes, what it is for."""

    table: str  # as in its header; "columns" for [columns.NAME]
    name: str
    takes: str
    default: str  # "" where there is none
    meaning: str
    example: str
    role: str = ""  # of the columns that have it; "" for all of them
    mechanisms: tuple[str, ...] = ()  # that have it; none for all
    beside: tuple[str, ...] = ()


def _sensitive(name: str, takes: str, default: str, meaning: str, example: str, *also: str) -> Key:
    beside = also or (MECHANISM, RETENTION, WORDS)
    return Key("columns", name, takes, default, meaning, example, "sensitive", beside=beside)


def _public(name: str, takes: str, default: str, meaning: str, example: str, *also: str) -> Key:
    return Key("columns", name, takes, default, meaning, example, "public", beside=also)


def _of(
    mechanisms: tuple[str, ...],
    name: str,
    takes: str,
    default: str,
    meaning: str,
    example: str,
    *also: str,
) -> Key:
    beside = (f'mechanism = "{mechanisms[0]}"', WORDS, *also)
    return Key("columns", name, takes, default, meaning, example, "sensitive", mechanisms, beside)


KEYS = (
    Key(
        "release",
        "table",
        "text",
        "",
        "Name of the published table. Required.",
        'table = "patients"',
    ),
    Key(
        "release",
        "source",
        "text or list",
        "",
        "Path of the raw rows, several paths or a glob; `file.duckdb::table` names a table. A"
        " path is"
        " relative to the spec.",
        'source = "patients.csv"',
    ),
    Key(
        "release",
        "source_table",
        "text",
        "",
        "The table, where the source is a DuckDB file.",
        'source_table = "patients"',
        beside=('source = "patients.duckdb"',),
    ),
    Key(
        "release",
        "unit",
        "text",
        '`"row"`',
        "The column that identifies a person. It is dropped, and a person's draws follow from it.",
        'unit = "patient_id"',
    ),
    Key(
        "release",
        "key",
        "text",
        "",
        "Path of the publisher's key, made with `privsql key new`. Without one a release is a"
        " one-off.",
        'key = "clinic.key"',
    ),
    Key(
        "release",
        "epsilon",
        "number",
        "",
        "Total epsilon of the release. Sensitive columns that state no strength of their own"
        " get equal"
        " shares of what the others leave.",
        "epsilon = 3",
    ),
    Key(
        "release",
        "join",
        "text",
        "",
        "The column on which the parts in `sources` are joined. It is dropped.",
        'join = "patient_id"',
        beside=('sources = [["people.csv"], ["visits.csv"]]',),
    ),
    Key(
        "release",
        "sources",
        "list of lists",
        "",
        "Parts of a source that hold different columns of the same people.",
        'sources = [["a1.csv", "a2.csv"], ["b.csv"]]',
        beside=('join = "patient_id"',),
    ),
    Key(
        "columns",
        "role",
        '`"drop"`, `"public"`, `"sensitive"` or `"decide"`',
        "",
        "What becomes of the column: left out, published as it is, or perturbed. Required."
        ' `"decide"` marks what is still open: `publish`, `perturb` and `advise` refuse it.',
        'role = "drop"',
    ),
    Key(
        "columns",
        "cast",
        "text",
        "the source's type",
        "A DuckDB type. Values are converted to it before anything else; one that cannot be is"
        " refused.",
        'cast = "INTEGER"',
    ),
    _public(
        "grouping",
        "boolean",
        "`true`",
        "Whether the column distinguishes personal groups. `false` is for measures that describe"
        " nobody.",
        "grouping = false",
    ),
    _public(
        "bins",
        "list of numbers or dates",
        "",
        'Values become intervals that begin at these: `"18-29"`, `"65+"`, and `"<0"` below the'
        " first."
        " NULL stays NULL.",
        "bins = [0, 18, 30, 65]",
    ),
    _public(
        "cut",
        "text or number",
        "",
        'A date is cut to its `"year"`, `"quarter"`, `"month"`, `"week"` or `"day"`, a'
        " timestamp also"
        ' to its `"hour"`. A number keeps so many first characters of a code.',
        'cut = "month"',
    ),
    _public(
        "map",
        "table of text",
        "",
        "Values that are replaced by others, compared as text.",
        'map = { "Graz" = "Styria", "Linz" = "Upper Austria" }',
    ),
    _public(
        "map_other",
        "text",
        "they stay",
        "What values that `map` does not list become.",
        'map_other = "elsewhere"',
        'map = { "Graz" = "Styria" }',
    ),
    _public(
        "top",
        "whole number",
        "",
        'The most frequent values, so many of them, stay; others become `"other"`. After'
        " `map`, where"
        " both are given.",
        "top = 20",
    ),
    _public(
        "accept_unique",
        "boolean",
        "`false`",
        "Publish a column although nearly every row has a value of its own in it, so that it"
        " identifies people.",
        "accept_unique = true",
    ),
    _sensitive(
        "mechanism",
        "text",
        "",
        "How values are perturbed: `uniform`, `replace`, `finegrain`, `matrix`, `identity`,"
        " `swap` or"
        " `decoy`. Required.",
        MECHANISM,
        RETENTION,
        WORDS,
    ),
    _sensitive(
        "domain",
        'list, range or `"observed"`',
        "",
        "All values that are possible: a list of text, numbers or dates; or a range with `lower`,"
        ' `upper` and `step`, whose values are rounded to the step. `"observed"` takes the'
        " values that"
        " at least 10 rows have, and the release has no epsilon. Required.",
        "domain = { lower = 0, upper = 100000, step = 5000 }",
        MECHANISM,
        RETENTION,
    ),
    _sensitive(
        "nullable",
        "boolean",
        "`false`",
        "Whether NULL is one of the possible values. It is then perturbed as the others are.",
        "nullable = true",
    ),
    _sensitive(
        "clip",
        "boolean",
        "`false`",
        "Values outside a range move to its ends instead of being refused; the report counts them.",
        "clip = true",
        MECHANISM,
        RETENTION,
        "domain = { lower = 0, upper = 120, step = 5 }",
    ),
    _sensitive(
        "other",
        "text",
        "",
        "A word of the listed domain that all values that are not listed become; the report counts"
        " them.",
        'other = "other"',
        MECHANISM,
        RETENTION,
        'domain = ["flu", "cold", "other"]',
    ),
    _sensitive(
        "observed",
        "boolean",
        "`false`",
        "The domain was taken from the data and nobody has confirmed it, so the release has no"
        " epsilon."
        " Delete the line once the domain holds what is possible.",
        "observed = true",
    ),
    _sensitive(
        "accept_epsilon",
        "boolean",
        "`false`",
        "Publish although the column's epsilon is above 5.",
        "accept_epsilon = true",
        MECHANISM,
        WORDS,
        "retention = 1.0",
    ),
    _of(
        ("uniform", "replace", "identity", "swap"),
        "retention",
        "number above 0, at most 1",
        "",
        "The chance that a value is kept.",
        RETENTION,
    ),
    _of(
        ("uniform", "replace"),
        "epsilon",
        "number above 0",
        "a share of the release's",
        "In place of a retention: the column's epsilon.",
        "epsilon = 1.5",
    ),
    _of(
        ("uniform", "replace", "identity", "swap", "finegrain"),
        "rho",
        "pair of numbers",
        "",
        "In place of a retention: a belief of at most rho1 never becomes one above rho2. For"
        " `finegrain` also a pair for each value.",
        "rho = [0.1, 0.25]",
    ),
    _of(
        ("replace",),
        "replacing",
        "list or table of numbers",
        "",
        "The distribution that replaced values are drawn from.",
        "replacing = [0.2, 0.2, 0.6]",
        RETENTION,
    ),
    _of(
        ("finegrain",),
        "theta",
        "number above 1",
        "",
        "In place of `rho`: rho1 is the prior of a value, rho2 theta times that.",
        "theta = 2",
    ),
    _of(
        ("finegrain",),
        "sides",
        '`"both"` or `"upward"`',
        '`"both"`',
        "Whether beliefs are kept from falling as well as from rising.",
        'sides = "upward"',
        "theta = 2",
    ),
    _of(
        ("finegrain",),
        "floor",
        "number from 0 to 1",
        "`0.01`",
        "The least retention of a value.",
        "floor = 0.05",
        "theta = 2",
    ),
    _of(
        ("finegrain",),
        "prior",
        'list or table of numbers, `"uniform"` or `"raw"`',
        '`"uniform"`',
        'What is believed before. `"raw"` takes the raw frequencies, and the release has no'
        " epsilon.",
        "prior = [0.2, 0.2, 0.6]",
        "theta = 2",
    ),
    _of(
        ("matrix",),
        "matrix",
        "list of lists, or table of lists",
        "",
        "A row for each value: the chances of what is published in its place.",
        "matrix = [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]]",
    ),
    _of(
        ("decoy",),
        "group_size",
        "whole number of at least 2",
        "",
        "Rows of one group, whose values are dealt out among them.",
        "group_size = 3",
    ),
    _of(
        ("decoy",),
        "partition",
        '`"proportional"` or `"anatomy"`',
        '`"proportional"`',
        "How rows come together in groups.",
        'partition = "anatomy"',
        "group_size = 3",
    ),
    Key(
        "groups",
        "merge",
        '`"chi2"` or `"none"`',
        '`"chi2"`',
        "Whether public values whose sensitive values do not differ share a personal group.",
        'merge = "none"',
    ),
    Key(
        "groups",
        "significance",
        "number between 0 and 1",
        "`0.05`",
        "Significance of the test for a difference.",
        "significance = 0.01",
    ),
    Key(
        "groups",
        "from",
        '`"published"` or `"raw"`',
        '`"published"`',
        'What the test looks at. With `"raw"` the release has no epsilon.',
        'from = "published"',
    ),
    Key(
        "groups",
        "df",
        '`"m-1"` or `"m"`',
        '`"m-1"`',
        "Degrees of freedom of the test.",
        'df = "m"',
    ),
    Key(
        "groups",
        "minimum",
        "whole number",
        "`0`",
        "Values rarer than this never link others.",
        "minimum = 5",
    ),
    Key(
        "protect.reconstruction",
        "lambda",
        "number above 0",
        "",
        "The relative error that nobody may undercut. Required.",
        "lambda = 0.3",
        beside=("delta = 0.3",),
    ),
    Key(
        "protect.reconstruction",
        "delta",
        "number between 0 and 1",
        "",
        "With at least which chance an estimate is off by more. Required.",
        "delta = 0.3",
        beside=("lambda = 0.3",),
    ),
    Key(
        "protect.reconstruction",
        "cap",
        '`"grid"`, `"one"` or `"exact"`',
        '`"grid"`',
        "How the largest private group is found.",
        'cap = "one"',
        beside=("lambda = 0.3", "delta = 0.3"),
    ),
    Key(
        "protect.reconstruction",
        "scaling",
        '`"weight"` or `"duplicate"`',
        '`"weight"`',
        "How groups that were cut down count for as many rows as before.",
        'scaling = "duplicate"',
        beside=("lambda = 0.3", "delta = 0.3"),
    ),
    Key(
        "protect.reconstruction",
        "from",
        '`"published"` or `"raw"`',
        '`"published"`',
        'What groups are judged by. With `"raw"` the release has no epsilon.',
        'from = "published"',
        beside=("lambda = 0.3", "delta = 0.3"),
    ),
    Key(
        "policy",
        "personal_groups",
        '`"refuse"`, `"flag"` or `"allow"`',
        '`"refuse"`; `"flag"` with `[protect.reconstruction]`',
        "What is done with questions about one personal group.",
        'personal_groups = "flag"',
    ),
    Key(
        "policy",
        "min_rows",
        "whole number",
        "`10`",
        "Rows that must stand behind a sensitive answer.",
        "min_rows = 20",
    ),
    Key(
        "policy",
        "differences",
        '`"check"` or `"ignore"`',
        '`"check"`',
        "Whether answers are held against earlier ones, whose difference may be about one group.",
        'differences = "ignore"',
    ),
    Key(
        "policy",
        "rows",
        '`"deny"` or `"allow"`',
        '`"deny"`',
        "Whether published rows may be listed.",
        'rows = "allow"',
    ),
    Key(
        "policy",
        "leverage",
        "table with `any` and `total`, shares below 1",
        "`{ any = 0.9, total = 0.8 }`",
        "How much of a personal group the answers of one user together may determine: of any"
        " weighting of its rows, and of its own count.  See threat-model.md.",
        "leverage = { any = 0.85, total = 0.75 }",
    ),
    Key(
        "policy",
        "always",
        "list of statements",
        "`[]`",
        "Statements that a server answers to every user, whatever was asked before: dashboards."
        "  They are public, as they stand in the release.",
        'always = ["SELECT disease, COUNT(*) FROM visits GROUP BY disease"]',
    ),
    Key(
        "tables",
        "source",
        "path of a CSV, Parquet or JSON file, beside the spec unless it is absolute",
        "",
        "Rows that are published as they are, to be joined. Required.",
        'source = "countries.parquet"',
        beside=('key = "code"',),
    ),
    Key(
        "tables",
        "key",
        "name of a column",
        "",
        "What identifies a row. Publishing refuses a key with NULLs or duplicates. Required.",
        'key = "code"',
        beside=('source = "countries.parquet"',),
    ),
)

MECHANISM_NAMES = ("uniform", "replace", "identity", "swap", "finegrain", "matrix", "decoy")

# What a mechanism takes, in the order in which it is asked for.
MECHANISMS = {
    name: tuple(key.name for key in KEYS if name in key.mechanisms) for name in MECHANISM_NAMES
}


def names(table: str, role: str | None = None) -> tuple[str, ...]:
    """Keys of a table; with ``role`` those that only columns of this role have.

    >>> names("protect.reconstruction")
    ('lambda', 'delta', 'cap', 'scaling', 'from')
    """
    return tuple(
        key.name for key in KEYS if key.table == table and (role is None or key.role == role)
    )

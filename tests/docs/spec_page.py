"""docs/spec.md: every key of a spec, from the list that the parser uses.

On a change: ``python -m tests.docs.spec_page > docs/spec.md``.
"""
# ruff: noqa: E501 - text of a page

from __future__ import annotations

from collections.abc import Iterator

from privsql.release.keys import KEYS, MECHANISMS, Key

HEAD = """# The spec

A spec is a TOML file that says what becomes of each column of a table. This page is written from the program
(`python -m tests.docs.spec_page > docs/spec.md`): every key, what it takes, its default, an example.
`privsql init SOURCE -o spec.toml` writes one to start from, and [publisher.md](publisher.md) says how to choose.
All mistakes are reported at once, each with its line.

{examples}
"""

EXAMPLES = {
    "A survey": """[release]
table = "survey"
source = "survey.csv"
unit = "person"
epsilon = 3

[columns.person]
role = "drop"

[columns.age]
role = "public"
bins = [0, 18, 30, 45, 65]

[columns.town]
role = "public"
top = 20

[columns.income]
role = "sensitive"
mechanism = "uniform"
cast = "INTEGER"
domain = { lower = 0, upper = 200000, step = 10000 }
clip = true

[columns.vote]
role = "sensitive"
mechanism = "uniform"
domain = ["left", "right", "other"]
other = "other"
""",
    "Dates": """[release]
table = "stays"

[columns.admitted]
role = "public"
cut = "month"

[columns.diagnosed]
role = "sensitive"
mechanism = "uniform"
epsilon = 1.5
domain = { lower = 2020-01-01, upper = 2024-12-31, step = "1 month" }
""",
    "NULL": """[release]
table = "answers"

[columns.answer]
role = "sensitive"
mechanism = "uniform"
retention = 0.4
domain = ["yes", "no"]
nullable = true
""",
}

NOTES = {
    "A survey": "Sensitive columns that state no strength share the release's epsilon equally.",
    "Dates": "Dates are written without quotes. A step is a whole number and a unit: microseconds, milliseconds,"
    " seconds, minutes, hours, days, weeks, months, quarters or years. A day counts to the month, quarter or year"
    " in which it lies; values of other steps are rounded to the nearest point. Bounds that are no points move"
    " outwards, and the report says so.",
    "NULL": "NULL is a value like the others: it is perturbed, and `answer IS NULL` is estimated. Without"
    " `nullable = true` a NULL in the column is refused.",
}

TABLES = {
    "release": ("[release]", "The release as a whole."),
    "columns": (
        "[columns.NAME]",
        "One table for each column of the source. `map` and `top` go together, other keys that make public columns"
        " coarser do not.",
    ),
    "groups": ("[groups]", "How public values merge into personal groups."),
    "protect.reconstruction": (
        "[protect.reconstruction]",
        "Reconstruction privacy: personal groups are cut down until nobody can estimate them well.",
    ),
    "policy": ("[policy]", "What sessions answer."),
    "tables": (
        "[tables.NAME]",
        "Public tables that are published with the release, to be joined with it under this name. Nothing in them is"
        " perturbed.",
    ),
}


def page() -> str:
    """The whole page."""
    lines = [HEAD.format(examples="\n".join(_examples()).rstrip())]
    for table, (header, said) in TABLES.items():
        lines += [f"## {header}", "", said, ""]
        keys = [key for key in KEYS if key.table == table]
        for role in dict.fromkeys(key.role for key in keys):
            if table == "columns":
                lines += [_heading(role), ""]
            lines += ["| key | takes | default | meaning | example |", "|---|---|---|---|---|"]
            lines += [_row(key) for key in keys if key.role == role]
            lines.append("")
    lines += ["## Mechanisms", "", "| mechanism | its keys |", "|---|---|"]
    lines += [
        f"| `{name}` | {', '.join(f'`{key}`' for key in keys)} |"
        for name, keys in MECHANISMS.items()
    ]
    return "\n".join(lines)


def _examples() -> Iterator[str]:
    for title, text in EXAMPLES.items():
        yield from (f"## {title}", "", "```toml", text.rstrip(), "```", "", NOTES[title], "")


def _heading(role: str) -> str:
    return f"### {role.capitalize()} columns" if role else "### All columns"


def _row(key: Key) -> str:
    some = f" For {', '.join(f'`{each}`' for each in key.mechanisms)}." if key.mechanisms else ""
    cells = (f"`{key.name}`", key.takes, key.default, key.meaning + some, f"`{key.example}`")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    print(page())

"""The list of keys: every example is read, and docs/spec.md is what the list says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from privsql.release.keys import KEYS
from privsql.release.spec import (
    COLUMN_KEYS,
    PROTECT_KEYS,
    TABLE_KEYS,
    TABLES,
    SpecError,
    parse_spec,
)
from tests.docs.spec_page import EXAMPLES, page

ROOT = Path(__file__).resolve().parents[2]

WHOLE = {
    "release": 'table = "t"\n',
    "columns.x": 'role = "sensitive"\nmechanism = "uniform"\nretention = 0.3\ndomain = [1, 2]\n',
}


def spec_with(key) -> str:
    """A whole spec in which the example of a key stands where it belongs."""
    table = f"{key.table}.y" if key.table in ("columns", "tables") else key.table
    lines = [*key.beside, key.example]
    if key.role:
        lines.insert(0, f'role = "{key.role}"')
    elif key.table == "columns" and key.name != "role":
        lines.insert(0, 'role = "public"')
    tables = dict(WHOLE)
    if key.name == "table":
        tables[table] = ""
    tables[table] = tables.get(table, "") + "\n".join(lines) + "\n"
    return "".join(f"[{name}]\n{text}" for name, text in tables.items())


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.table} {key.name}")
def test_an_example_is_read_and_says_something(key):
    text = spec_with(key)
    spec = parse_spec(text)
    name = next(iter(tomllib.loads(key.example)))
    assert name == key.name
    # The key is looked at: something else in its place is a mistake, or another spec.
    wrong = text.replace(key.example, f"{key.name} = [[]]")
    with pytest.raises(SpecError) as caught:
        parse_spec(wrong)
    assert any(key.name in mistake.place for mistake in caught.value.mistakes), caught.value
    assert spec.table


def test_every_key_that_the_parser_knows_is_listed():
    known = {(table, key) for table, keys in TABLES.items() if table != "protect" for key in keys}
    known |= {("columns", key) for key in COLUMN_KEYS}
    known |= {("protect.reconstruction", key) for key in PROTECT_KEYS}
    known |= {("tables", key) for key in TABLE_KEYS}
    assert {(key.table, key.name) for key in KEYS} == known
    assert len(KEYS) == len(known)


def test_the_page_is_what_the_code_says():
    """On a change: python -m tests.docs.spec_page > docs/spec.md."""
    assert (ROOT / "docs" / "spec.md").read_text() == page() + "\n"


def test_the_examples_of_the_page_are_specs():
    blocks = re.findall(r"^```toml\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == len(EXAMPLES) == 3
    for block in blocks:
        parse_spec(block)
    assert any("nullable = true" in block for block in blocks)
    assert any('step = "1 month"' in block for block in blocks)

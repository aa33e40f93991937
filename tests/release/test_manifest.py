from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest

from privsql.channels import Categorical, Grid, Uniform
from privsql.errors import IntegrityError
from privsql.release import manifest as m

ROOT = Path(__file__).resolve().parents[2]


def example(**changes) -> m.Manifest:
    made = m.Manifest(
        release="00ff",
        software="privsql 0.1.0",
        created="2026-11-16",
        table="patients",
        public=(m.PublicColumn("job", "VARCHAR"), m.PublicColumn("cost", "BIGINT", False)),
        sensitive=(
            m.SensitiveColumn(
                "disease", "VARCHAR", "uniform", Categorical(("a", "b")), Uniform(0.5, 2), 1.0986
            ),
            m.SensitiveColumn("age", "INTEGER", "swap", Grid.of(0, 9), Uniform(1, 10), math.inf),
        ),
        rows=10,
        grouped=False,
        weighted=False,
        multiplicity=True,
        privacy=m.Privacy("person", math.inf, 2, True, ("swap on age draws from the data",)),
        groups=m.Groups("chi2", 0.05, "published", "m-1", 0, ("job",), 3),
        protection=m.Protection(0.3, 0.3, "grid", "weight", "published"),
        policy=m.Policy(),
    )
    return dataclasses.replace(made, **changes)


def test_a_manifest_survives_json_with_its_infinities():
    for made in (example(), example(protection=None)):
        assert m.Manifest.from_json(made.to_json()) == made
        assert "Infinity" not in made.to_json()


def test_public_tables_are_told_where_there_are_any():
    columns = (m.TableColumn("code", "VARCHAR"), m.TableColumn("since", "DATE"))
    made = example(tables=(m.PublicTable("trades", "code", 3, columns),))
    assert m.Manifest.from_json(made.to_json()) == made
    assert "tables" not in example().to_json()


def test_rows_of_a_person_are_told_where_they_are_several():
    one = example()
    assert "rows_per_unit" not in one.to_json()
    several = example(privacy=dataclasses.replace(one.privacy, rows_per_unit=4))
    assert m.Manifest.from_json(several.to_json()) == several


def test_another_format_is_refused_by_name():
    with pytest.raises(IntegrityError, match="format 2"):
        m.Manifest.from_json(example().to_json().replace('"format": 1', '"format": 2'))


def test_anything_missing_or_foreign_is_damage():
    data = json.loads(example().to_json())
    for key in data:
        if key == "format":
            continue
        short = {k: v for k, v in data.items() if k != key}
        with pytest.raises(IntegrityError, match="damaged"):
            m.Manifest.from_json(json.dumps(short))
    for text in ("", "[]", "{", '{"format": "1"}'):
        with pytest.raises(IntegrityError, match="damaged"):
            m.Manifest.from_json(text)
    data["policy"]["extra"] = 1
    with pytest.raises(IntegrityError, match="damaged"):
        m.Manifest.from_json(json.dumps(data))


def test_every_field_is_explained_on_its_page():
    page = (ROOT / "docs" / "manifest.md").read_text()
    fields = re.findall(r"^\| `(\w+)` \| (.*?) \| .* \|$", page.split("## Tables")[0], re.M)
    documented = {name: set(re.findall(r"`(\w+)`", what)) for name, what in fields}
    assert set(documented) == {field.name for field in dataclasses.fields(m.Manifest)}
    inside = {
        "public": m.PublicColumn,
        "sensitive": m.SensitiveColumn,
        "privacy": m.Privacy,
        "groups": m.Groups,
        "protection": m.Protection,
        "policy": m.Policy,
        "tables": m.PublicTable,
    }
    for name, kind in inside.items():
        assert documented[name] == {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        (
            m.Privacy("person", 2.0, 1, True),
            "Each person's published values together are 2-locally",
        ),
        (
            m.Privacy("row", 2.0, 3, False),
            "over 3 publications to persons",
        ),
        (m.Privacy("row", math.inf, 1, True, ("x",)), "No epsilon for this release: x."),
        (m.Privacy("row", math.inf, 1, True), "published as they are"),
        (m.Privacy("row", 1.0, 1, True, (), True), "UNSAFE"),
        (
            m.Privacy("person", math.inf, 1, True, ("x",), rows_per_unit=3),
            "No epsilon for this release: x; some persons have several rows, up to 3.",
        ),
    ],
)
def test_the_promise_in_words(privacy, words):
    assert words in privacy.statement()

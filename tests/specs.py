"""Specs of small releases, as the tests write them.

>>> print(spec("visits", public("city"), sensitive("ill", 0.5, ["flu", "none"]), unit="id"))
[release]
table = "visits"
unit = "id"
[columns.city]
role = "public"
[columns.ill]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["flu", "none"]
<BLANKLINE>
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def spec(table: str, *columns: str, more: str = "", **release: Any) -> str:
    """The text of a spec: columns, what [release] says beside the table, and ``more`` of TOML."""
    return "".join([_section("release", {"table": table, **release}), *columns, more.lstrip("\n")])


def drop(name: str) -> str:
    """A column that never leaves."""
    return _column(name, role="drop")


def public(name: str, **keys: Any) -> str:
    """A public column."""
    return _column(name, role="public", **keys)


def measure(name: str, **keys: Any) -> str:
    """A public column that does not tell groups apart."""
    return public(name, grouping=False, **keys)


def sensitive(
    name: str, retention: float | None, domain: object, mechanism: str = "uniform", **keys: Any
) -> str:
    """A column that is perturbed."""
    kept = {} if retention is None else {"retention": retention}
    return _column(name, role="sensitive", mechanism=mechanism, **kept, domain=domain, **keys)


def grid(lower: float, upper: float, step: float = 1) -> dict[str, float]:
    """A range of numbers, as a domain."""
    return {"lower": lower, "upper": upper, "step": step}


def _column(name: str, **keys: Any) -> str:
    plain = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return _section(f"columns.{name if plain else json.dumps(name)}", keys)


def _section(name: str, keys: Mapping[str, Any]) -> str:
    return "".join([f"[{name}]\n", *(f"{key} = {_toml(value)}\n" for key, value in keys.items())])


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)

"""Values and keys as TOML."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal

BARE = re.compile(r"[A-Za-z0-9_-]+")


def written(value: object) -> str:
    r"""A value as TOML.

    >>> written(["a", 'b "c"', True, Decimal("0.50"), date(2024, 1, 31)])
    '["a", "b \\"c\\"", true, 0.50, 2024-01-31]'
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    """A name as a key.

    >>> key("age"), key("a b")
    ('age', '"a b"')
    """
    return name if BARE.fullmatch(name) else written(name)


def comment(text: str) -> str:
    """A text as it may stand after #: in one line, without control characters."""
    return "".join(each if each.isprintable() else " " for each in text)

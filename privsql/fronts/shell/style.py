"""Colours of the shell, where the terminal supports them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

HEADING, RULE, ERROR, MARK, HINT, NOTICE = "1", "2", "1;31", "31", "36", "33"


@dataclass(frozen=True)
class Looks:
    """How text is coloured: with the codes of a terminal, or not at all."""

    coloured: bool = False

    def __call__(self, text: str, code: str) -> str:
        r"""Text in a colour.

        >>> Looks()("a", HINT), Looks(True)("a", HINT)
        ('a', '\x1b[36ma\x1b[0m')
        """
        return f"\x1b[{code}m{text}\x1b[0m" if self.coloured and text else text


def wanted(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a stream is a terminal, and NO_COLOR and TERM allow colours."""
    if environment.get("NO_COLOR") or environment.get("TERM", "") in ("dumb", ""):
        return False
    return stream.isatty()

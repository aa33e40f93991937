"""Merging of one public column alone, as ``privsql.publish.groups.merging.merge`` does for each."""

from __future__ import annotations

from typing import Any

from privsql.publish.groups.chisquare import links_of
from privsql.publish.groups.merging import Labels, components


def merge_column(tables: Any, **options: Any) -> Labels:
    """Generalised value of each value of one public column: components of the links.

    >>> merge_column([[[50, 50], [90, 10], [52, 48]]])
    array([0, 1, 0])
    """
    return components(links_of(tables, **options))

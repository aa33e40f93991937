"""The tables and columns of an open release for SQLAlchemy's inspector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy.engine.interfaces import ReflectedColumn

from privsql.fronts.pgwire.catalog.rows import comment_of, comment_on
from privsql.fronts.sqlalchemy.compiler import type_of
from privsql.release.manifest import PublicColumn, SensitiveColumn
from privsql.release.names import quoted
from privsql.session.session import Session


@dataclass(frozen=True)
class Table:
    """A table that a query can name."""

    columns: Sequence[ReflectedColumn]
    comment: str


def session(connection: Any) -> Session:
    """The session behind a connection of ``privsql.connect``."""
    return cast(Session, connection._session)


def tables(connection: Any) -> dict[str, Table]:
    """The published table first, then public tables that the analyst brought.

    Columns are those of the manifest: what else the file holds explains rows to the session and
    is not there for anybody else.  The comments are those of ``privsql serve``.
    """
    opened = session(connection)
    manifest = opened.release.manifest
    columns: tuple[PublicColumn | SensitiveColumn, ...] = (*manifest.public, *manifest.sensitive)
    own = [_column(each.name, each.type, comment_of(each)) for each in columns]
    found = {manifest.table: Table(own, comment_on(manifest))}
    released = {each.name for each in manifest.tables}
    for name, listed in opened.catalog.tables.items():
        wanted = ", ".join(quoted(column) for column, _ in listed)
        kinds = opened.describe(f"SELECT {wanted} FROM {quoted(name)}")  # noqa: S608
        beside = [_column(each.name, each.type, None) for each in kinds]
        whose = "release" if name in released else "connection"
        found[name] = Table(beside, f"a public table of this {whose}")
    return found


def _column(name: str, kind: str, comment: str | None) -> ReflectedColumn:
    return {
        "name": name,
        "type": type_of(kind),
        "nullable": True,
        "default": None,
        "autoincrement": False,
        "comment": comment,
    }

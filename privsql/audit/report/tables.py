"""The figures of an audit as SQL tables.

    audit_findings   one row a sentence of the report
    audit_columns    one row a sensitive column
    audit_values     one row a value, by its code in the domain; the first of each column
    audit_groups     one row a column and non-empty personal group, tails of those worst off

Made from raw data they are the publisher's own and belong in a file of their own, never in
the release.  Without raw data they follow from the release, and whoever has its file may have
them; what a session shows of them, under the release's policy, is less (``tables_public``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.audit.criteria.findings import GroupAudit, GroupTail
from privsql.audit.criteria.trials import Tails
from privsql.errors import OperationalError
from privsql.files import made_whole

if TYPE_CHECKING:
    from privsql.audit.report.report import AuditReport


def tables_of(report: AuditReport) -> dict[str, pa.Table]:
    """All tables by name."""
    return {
        "audit_findings": findings_table(report),
        "audit_columns": columns_table(report),
        "audit_values": values_table(report),
        "audit_groups": groups_table(report.groups),
    }


def write_tables(report: AuditReport, path: Path, *, force: bool = False) -> None:
    """Write the tables into the schema ``privsql`` of a new DuckDB file."""
    import duckdb

    tables = tables_of(report)
    with made_whole(path, force=force) as made:
        try:
            with duckdb.connect(str(made)) as con:
                con.execute("CREATE SCHEMA privsql")
                for name, table in tables.items():
                    con.from_arrow(table).create(f"privsql.{name}")
        except duckdb.Error:
            raise OperationalError(f"the tables could not be written beside {path}") from None


def findings_table(report: AuditReport) -> pa.Table:
    """One row per finding."""
    return pa.table(
        {
            name: pa.array([getattr(each, name) for each in report.findings], pa.string())
            for name in ("subject", "criterion", "verdict", "text", "advice")
        }
    )


def columns_table(report: AuditReport) -> pa.Table:
    """One row per sensitive column."""
    texts, wholes = ("name", "mechanism"), ("values", "group_size", "large_sum_exact")
    figures = (
        *("gamma", "epsilon", "upward", "downward", "s_limit", "s_observed", "posterior"),
        *("identity_limit", "rows_needed", "reached_error", "record_utility"),
        *("small_sum", "large_sum_printed", "large_sum"),
    )
    kept = [column.retention or (None, None) for column in report.columns]
    made: dict[str, Any] = {}
    for names, kind in ((texts, pa.string()), (wholes, pa.int64()), (figures, pa.float64())):
        for name in names:
            made[name] = pa.array([getattr(each, name) for each in report.columns], kind)
    made["retention_least"] = pa.array([low for low, _ in kept], pa.float64())
    made["retention_most"] = pa.array([high for _, high in kept], pa.float64())
    return pa.table(made)


def values_table(report: AuditReport) -> pa.Table:
    """One row per value of a column, by its code in the domain."""
    rows = [
        {"column_name": column.name} | asdict(value)
        for column in report.columns
        for value in column.per_value
    ]
    kinds: dict[str, pa.DataType] = {"column_name": pa.string(), "code": pa.int64()}
    kinds["value"] = pa.string()
    kinds |= dict.fromkeys(("up", "down", "kept", "share", "error"), pa.float64())
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


def groups_table(groups: Sequence[GroupAudit]) -> pa.Table:
    """One row per column and non-empty personal group."""
    audits = [group for group in groups for _ in group.number]
    tails: list[GroupTail | None] = []
    for group in groups:
        known = {tail.group: tail for tail in group.tails}
        tails += [known.get(number) for number in group.number.tolist()]
    bounds = [None if tail is None else tail.chernoff for tail in tails]
    exact = [None if tail is None else tail.exact for tail in tails]

    def joined(name: str) -> Any:
        return np.concatenate([np.zeros(0), *(getattr(group, name) for group in groups)])

    def chances(found: Sequence[Tails | None], side: str) -> Any:
        return pa.array([t if t is None else getattr(t, side) for t in found], pa.float64())

    return pa.table(
        {
            "column_name": pa.array([group.column for group in audits], pa.string()),
            "group_number": joined("number").astype(np.int64),
            **{name: joined(name) for name in ("rows", "trials", "frequency", "cap")},
            "violates": joined("trials") > joined("cap"),
            "chernoff_lower": chances(bounds, "lower"),
            "chernoff_upper": chances(bounds, "upper"),
            "exact_lower": chances(exact, "lower"),
            "exact_upper": chances(exact, "upper"),
            "frequency_is": pa.array(
                ["raw" if group.known else "reconstructed" for group in audits], pa.string()
            ),
        }
    )

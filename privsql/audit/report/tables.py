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

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from privsql.audit.criteria.findings import GroupAudit
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
        "audit_groups": pa.concat_tables([_groups(each) for each in report.groups])
        if report.groups
        else _groups(None),
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
    kinds = {"column_name": pa.string(), "code": pa.int64()}
    names = ("column_name", "code", "up", "down", "kept", "share", "error")
    return pa.table(
        {
            name: pa.array([row[name] for row in rows], kinds.get(name, pa.float64()))
            for name in names
        }
    )


def _groups(group: GroupAudit | None) -> pa.Table:
    known = {} if group is None else {tail.group: tail for tail in group.tails}
    numbers = [] if group is None else group.number.tolist()
    tails = [known.get(number) for number in numbers]
    exact = [None if tail is None else tail.exact for tail in tails]

    def figures(values: Any) -> Any:
        return pa.array(values, pa.float64())

    columns: dict[str, Any] = {
        "column_name": pa.array(
            [] if group is None else [group.column] * len(numbers), pa.string()
        ),
        "group_number": pa.array(numbers, pa.int64()),
        "rows": figures([] if group is None else group.rows),
        "trials": figures([] if group is None else group.trials),
        "frequency": figures([] if group is None else group.frequency),
        "cap": figures([] if group is None else group.cap),
        "violates": pa.array([] if group is None else group.trials > group.cap, pa.bool_()),
        "chernoff_lower": figures([None if t is None else t.chernoff.lower for t in tails]),
        "chernoff_upper": figures([None if t is None else t.chernoff.upper for t in tails]),
        "exact_lower": figures([None if t is None else t.lower for t in exact]),
        "exact_upper": figures([None if t is None else t.upper for t in exact]),
        "frequency_is": pa.array(
            [] if group is None else ["raw" if group.known else "reconstructed"] * len(numbers),
            pa.string(),
        ),
    }
    return pa.table(columns)

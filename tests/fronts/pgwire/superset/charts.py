"""Charts as Superset's own pages ask for them, beside the question in plain SQL."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.fronts.pgwire.superset.site import Site, StepError, refused, said, same

COUNT = {"expressionType": "SQL", "sqlExpression": "COUNT(*)", "label": "COUNT(*)"}
FLU = {"col": "illness", "op": "==", "val": "flu"}
NORTH = {"col": "city", "op": "==", "val": "north"}
HALF = {"col": "visit", "op": "TEMPORAL_RANGE", "val": "2024-01-01 : 2024-04-01"}
WHERE_HALF = "visit >= TIMESTAMP '2024-01-01' AND visit < TIMESTAMP '2024-04-01'"


def simple(aggregate: str, column: str) -> dict[str, Any]:
    """A metric that is clicked together."""
    return {
        "expressionType": "SIMPLE",
        "column": {"column_name": column},
        "aggregate": aggregate,
        "label": f"{aggregate}({column})",
    }


def written(sql: str, label: str = "") -> dict[str, Any]:
    """A metric that is typed."""
    return {"expressionType": "SQL", "sqlExpression": sql, "label": label or sql}


def by(grain: str) -> dict[str, Any]:
    """The time axis of a chart."""
    return {
        "timeGrain": grain,
        "columnType": "BASE_AXIS",
        "sqlExpression": "visit",
        "label": "visit",
        "expressionType": "SQL",
    }


@dataclass(frozen=True)
class Chart:
    """One question: columns, metrics and filters as Superset has them, and its SQL."""

    sql: str
    columns: tuple[Any, ...] = ()
    metrics: tuple[Any, ...] = (COUNT,)
    filters: tuple[dict[str, Any], ...] = ()
    more: dict[str, Any] = field(default_factory=dict)

    def query(self) -> dict[str, Any]:
        return {
            "columns": list(self.columns),
            "metrics": list(self.metrics),
            "filters": list(self.filters),
            "row_limit": 10_000,
            "orderby": [[metric, False] for metric in self.metrics[:1]],
            **self.more,
        }


CHARTS = {
    "bars": Chart("SELECT illness, COUNT(*) FROM patients GROUP BY illness", ("illness",)),
    "bars of a public column": Chart(
        "SELECT city, COUNT(*) FROM patients GROUP BY city", ("city",)
    ),
    "the dataset's own count": Chart(
        "SELECT illness, COUNT(*) FROM patients GROUP BY illness", ("illness",), ("count",)
    ),
    "filter by a public column": Chart(
        "SELECT illness, COUNT(*) FROM patients WHERE city = 'north' GROUP BY illness",
        ("illness",),
        filters=(NORTH,),
    ),
    "filter by a sensitive column": Chart(
        "SELECT city, COUNT(*) FROM patients WHERE illness = 'flu' GROUP BY city",
        ("city",),
        filters=(FLU,),
    ),
    "filters of every kind": Chart(
        "SELECT city, COUNT(*) FROM patients WHERE illness IN ('flu', 'cough') AND age >= 30"
        " AND age < 70 AND illness NOT IN ('cough') AND illness ILIKE 'f%'"
        " AND illness IS NOT NULL GROUP BY city",
        ("city",),
        filters=(
            {"col": "illness", "op": "IN", "val": ["flu", "cough"]},
            {"col": "age", "op": ">=", "val": 30},
            {"col": "age", "op": "<", "val": 70},
            {"col": "illness", "op": "NOT IN", "val": ["cough"]},
            {"col": "illness", "op": "ILIKE", "val": "f%"},
            {"col": "illness", "op": "IS NOT NULL"},
        ),
    ),
    "big number": Chart("SELECT COUNT(*) FROM patients WHERE illness = 'flu'", filters=(FLU,)),
    "means": Chart(
        "SELECT city, AVG(age), SUM(age) FROM patients GROUP BY city",
        ("city",),
        (simple("AVG", "age"), simple("SUM", "age")),
    ),
    "a typed metric": Chart(
        "SELECT city, 100.0 * COUNT(*) FILTER (WHERE illness = 'flu') / COUNT(*) FROM patients"
        " GROUP BY city",
        ("city",),
        (written("100.0 * COUNT(*) FILTER (WHERE illness = 'flu') / COUNT(*)"),),
    ),
    "stacked bars": Chart(
        "SELECT city, illness, COUNT(*) FROM patients GROUP BY city, illness", ("city", "illness")
    ),
    "months": Chart(
        "SELECT date_trunc('month', visit) AS m, COUNT(*) FROM patients"
        f" WHERE illness = 'flu' AND {WHERE_HALF} GROUP BY m",
        (by("P1M"),),
        filters=(FLU, HALF),
    ),
    "weeks of each illness": Chart(
        "SELECT date_trunc('week', visit) AS w, illness, COUNT(*) FROM patients GROUP BY ALL",
        (by("P1W"), "illness"),
    ),
    "a condition on the metric": Chart(
        "SELECT illness, COUNT(*) FROM patients GROUP BY illness HAVING COUNT(*) > 5000",
        ("illness",),
        more={"extras": {"having": "COUNT(*) > 5000"}},
    ),
    "a typed condition": Chart(
        "SELECT city, COUNT(*) FROM patients WHERE age BETWEEN 20 AND 40 GROUP BY city",
        ("city",),
        more={"extras": {"where": "age BETWEEN 20 AND 40"}},
    ),
    "a typed column": Chart(
        "SELECT CASE WHEN age < 50 THEN 'young' ELSE 'old' END AS g, COUNT(*) FROM patients"
        " GROUP BY g",
        (written("CASE WHEN age < 50 THEN 'young' ELSE 'old' END"),),
    ),
    "error bars": Chart(
        "SELECT illness, COUNT(*) AS n, privsql_low(n) AS a, privsql_high(n) AS z FROM patients"
        " GROUP BY illness",
        ("illness",),
        (
            written("COUNT(*)", "n"),
            written("privsql_low(COUNT(*))", "low"),
            written("privsql_high(COUNT(*))", "high"),
        ),
    ),
    "count of the rows of a table": Chart(
        "SELECT COUNT(*) FROM (SELECT city, illness, COUNT(*) FROM patients GROUP BY ALL)",
        ("city", "illness"),
        more={"is_rowcount": True},
    ),
    "cells of personal groups": Chart(
        "SELECT city, sex, visit, illness, COUNT(*) FROM patients GROUP BY ALL",
        ("city", "sex", "visit", "illness"),
    ),
}


def data(
    site: Site, query: dict[str, Any], dataset: str = "dataset", kind: str = "full"
) -> tuple[int, dict[str, Any]]:
    """What a chart is drawn from."""
    source = {"id": site.of(dataset), "type": "table"}
    given = {"datasource": source, "queries": [query], "force": True}
    shape = {"result_format": "json", "result_type": kind}
    return site.api.call("POST", "chart/data", {**given, **shape})


def rows(status: int, found: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of one query, in the order of its columns."""
    if status != 200 or found["result"][0].get("error"):
        raise StepError(f"{status} {said(found)}")
    (result,) = found["result"]
    return [tuple(row[name] for name in result["colnames"]) for row in result["data"]]


def drawn(site: Site, chart: Chart, dataset: str = "dataset") -> str:
    """A chart's data are what Python gives for the same question."""
    return same(site, rows(*data(site, chart.query(), dataset)), chart.sql)


def saved(site: Site) -> str:
    """A bar chart that is saved, and drawn again from what was saved."""
    chart = CHARTS["bars"]
    source = {"id": site.of("dataset"), "type": "table"}
    context = {"datasource": source, "queries": [chart.query()], "result_format": "json"}
    given = {"viz_type": "echarts_timeseries_bar", "x_axis": "illness", "metrics": [COUNT]}
    made = site.call(
        "POST",
        "chart/",
        {
            "slice_name": "illnesses",
            "viz_type": "echarts_timeseries_bar",
            "datasource_id": site.of("dataset"),
            "datasource_type": "table",
            "params": json.dumps({**given, "groupby": []}),
            "query_context": json.dumps({**context, "result_type": "full"}),
        },
    )
    found = rows(*site.api.call("GET", f"chart/{made['id']}/data/?force=true"))
    (site.served.log.parent / "chart.json").write_text(json.dumps(found))
    return f"{same(site, found, chart.sql)}: {found}"


def null_cells(site: Site) -> str:
    """Cells of personal groups come as nulls, and there are some."""
    chart = CHARTS["cells of personal groups"]
    found = rows(*data(site, chart.query()))
    if not any(row[-1] is None for row in found):
        raise StepError("no cell is NULL")
    return same(site, found, chart.sql)


def chart_refused(site: Site, chart: Chart, words: tuple[str, ...], kind: str = "full") -> str:
    """A chart that cannot be has the refusal in its place, with the way out."""
    status, found = data(site, chart.query(), kind=kind)
    if status == 200 and not found["result"][0].get("error"):
        raise StepError(f"it was answered: {found['result'][0]['data'][:5]}")
    return refused(found, words)


PERSONAL = Chart(
    "",
    filters=(
        NORTH,
        {"col": "sex", "op": "==", "val": "F"},
        {"col": "visit", "op": "TEMPORAL_RANGE", "val": "2024-01-01 : 2024-02-01"},
        FLU,
    ),
)
# Superset joins the rows with the answer to another question: which series are the largest.
LARGEST = Chart(
    "",
    ("city", "illness"),
    more={"series_columns": ["city"], "series_limit": 1, "series_limit_metric": COUNT},
)

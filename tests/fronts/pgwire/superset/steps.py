"""The steps, in the order in which somebody new to a database takes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

from tests.fronts.pgwire.superset import charts
from tests.fronts.pgwire.superset.site import Site, StepError, refused, said, same

__all__ = ["STEPS", "Site", "StepError"]

COLUMNS = {"city", "sex", "visit", "illness", "age"}


def trial(site: Site) -> str:
    given = {"database_name": "releases", "sqlalchemy_uri": site.served.uri}
    return said(site.call("POST", "database/test_connection/", given))


def connect(site: Site) -> str:
    given = {"database_name": "releases", "sqlalchemy_uri": site.served.uri}
    made = site.call("POST", "database/", {**given, "expose_in_sqllab": True})
    site.made["database"] = made["id"]
    return ""


def schemas(site: Site) -> str:
    found = site.call("GET", f"database/{site.of('database')}/schemas/")["result"]
    if "public" not in found:
        raise StepError(f"public is not among {found}")
    return ", ".join(found)


def tables(site: Site) -> str:
    asked = quote("(force:!t,schema_name:public)")
    found = site.call("GET", f"database/{site.of('database')}/tables/?q={asked}")["result"]
    names = [each["value"] for each in found]
    if names != ["patients"]:
        raise StepError(f"{names} are listed")
    return ", ".join(names)


def columns(site: Site) -> str:
    asked = "name=patients&schema=public"
    found = site.call("GET", f"database/{site.of('database')}/table_metadata/?{asked}")
    types = {each["name"]: each["type"] for each in found["columns"]}
    if set(types) != COLUMNS:
        raise StepError(f"{types} are listed")
    missing = [each["name"] for each in found["columns"] if not each.get("comment")]
    if missing:
        raise StepError(f"no description of {missing}")
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def dataset(site: Site) -> str:
    given = {"database": site.of("database"), "schema": "public", "table_name": "patients"}
    site.made["dataset"] = site.call("POST", "dataset/", given)["id"]
    found = site.call("GET", f"dataset/{site.of('dataset')}")["result"]["columns"]
    names = {each["column_name"] for each in found}
    times = [each["column_name"] for each in found if each["is_dttm"]]
    if names != COLUMNS or times != ["visit"]:
        raise StepError(f"its columns are {names}, of time {times}")
    return f"{len(names)} columns"


def virtual(site: Site) -> str:
    """A dataset that is a query: Superset puts it into FROM (...) AS virtual_table."""
    inner = "SELECT city, illness, COUNT(*) AS n FROM public.patients GROUP BY city, illness"
    given = {"database": site.of("database"), "schema": "public", "sql": inner}
    made = site.call("POST", "dataset/", {**given, "table_name": "counts"})
    site.made["virtual"] = made["id"]
    sql = f"SELECT illness, SUM(n) FROM ({inner.replace('public.', '')}) AS v GROUP BY illness"
    return charts.drawn(
        site, charts.Chart(sql, ("illness",), (charts.simple("SUM", "n"),)), "virtual"
    )


def virtual_rows(site: Site) -> str:
    """A dataset of rows: Superset asks for one to learn the columns, and says no more than this."""
    sql = "SELECT city, illness FROM public.patients"
    given = {"database": site.of("database"), "schema": "public", "sql": sql}
    status, found = site.api.call("POST", "dataset/", {**given, "table_name": "some"})
    decision = site.served.entries()[-1].decision
    if status < 400 or decision != "refused":
        raise StepError(f"{status}, {decision}")
    return said(found)


def menu(site: Site, name: str, wanted: list[Any]) -> str:
    """The values that a filter offers."""
    found = site.call("GET", f"datasource/table/{site.of('dataset')}/column/{name}/values/")
    if sorted(found["result"]) != wanted:
        raise StepError(f"{found['result']} are offered")
    return ", ".join(map(str, wanted))


def asked(site: Site, sql: str) -> tuple[int, dict[str, Any]]:
    """What SQL Lab shows for a statement."""
    given = {"database_id": site.of("database"), "schema": "public", "sql": sql}
    return site.api.call("POST", "sqllab/execute/", {**given, "runAsync": False})


def lab(site: Site, sql: str, plain: str = "") -> str:
    status, found = asked(site, sql)
    if status != 200:
        raise StepError(f"{status} {said(found)}")
    names = [column["column_name"] for column in found["columns"]]
    rows = [tuple(row[name] for name in names) for row in found["data"]]
    return same(site, rows, plain or sql)


def lab_refused(site: Site, sql: str, *words: str) -> str:
    status, found = asked(site, sql)
    if status == 200:
        raise StepError(f"it was answered: {found.get('data')}")
    return refused(found, words)


BY_CITY = "SELECT city, COUNT(*) AS n FROM patients WHERE illness = 'flu' GROUP BY city"
PERSONAL = (
    "SELECT COUNT(*) FROM patients WHERE city = 'north' AND sex = 'F'"
    " AND visit = TIMESTAMP '2024-01-15' AND illness = 'flu'"
)

STEPS: dict[str, Callable[[Site], str]] = {
    "test the connection": trial,
    "connect": connect,
    "schemas": schemas,
    "tables": tables,
    "columns": columns,
    "dataset": dataset,
    "saved chart": charts.saved,
    **{
        f"chart: {name}": partial(charts.drawn, chart=chart)
        for name, chart in charts.CHARTS.items()
        if name != "cells of personal groups"
    },
    "chart: NULL cells": charts.null_cells,
    "chart: a dataset that is a query": virtual,
    "a dataset of rows is refused": virtual_rows,
    "chart: a personal group is refused": partial(
        charts.chart_refused, chart=charts.PERSONAL, words=("one personal group", "HINT:")
    ),
    "chart: a limit of series is refused": partial(
        charts.chart_refused, chart=charts.LARGEST, words=("a join of published rows", "HINT:")
    ),
    "filter menu of illness": partial(menu, name="illness", wanted=["cough", "flu", "none"]),
    "filter menu of city": partial(menu, name="city", wanted=["north", "south"]),
    "preview of rows is refused": partial(
        charts.chart_refused,
        chart=charts.CHARTS["bars"],
        words=("published rows themselves", "HINT:"),
        kind="samples",
    ),
    "SQL Lab": partial(lab, sql=BY_CITY),
    "SQL Lab: with a semicolon and a comment": partial(
        lab, sql=f"-- flu by city\n{BY_CITY} ORDER BY 1;", plain=BY_CITY
    ),
    "SQL Lab: WITH": partial(
        lab, sql=f"WITH sick AS ({BY_CITY}) SELECT * FROM sick ORDER BY n DESC", plain=BY_CITY
    ),
    "SQL Lab: SET": partial(
        lab,
        sql=f"SET privsql.error_bars = true; {BY_CITY}",
        plain="SELECT city, COUNT(*) AS n, privsql_stderr(n), privsql_low(n), privsql_high(n),"
        " privsql_reliable(n) FROM patients WHERE illness = 'flu' GROUP BY city",
    ),
    "SQL Lab: a personal group is refused": lambda site: lab_refused(
        site, PERSONAL, "one personal group", "HINT:"
    ),
    "SQL Lab: rows are refused": lambda site: lab_refused(site, "SELECT * FROM patients", "HINT:"),
}

"""Six dashboards over the demo's clinic, as a person uses them in a morning.

Each is the list of statements that its panels send: when it is opened, and again for each move of
a slider, each click on a bar, each step into a bar, each refresh.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterable, Sequence

from privsql.fronts.demo.recipe import AGES, DISEASES, DISTRICTS, JOBS, SEXES
from tests.policy.dashboards.statements import Aggregate, Statement, where

SMOKERS = Aggregate(where=("smoker = 'yes'",))
SHARE = Aggregate("RATE", "", ("smoker = 'yes'",))
SPENT = Aggregate("SUM", "cost", ("smoker = 'yes'",))
MEAN = Aggregate("AVG", "cost", ("smoker = 'yes'",))
ROWS = Aggregate()
CHRONIC = "disease IN ('copd', 'diabetes', 'hypertension')"
VALUES: dict[str, Sequence[str | int]] = {
    "sex": SEXES,
    "age": AGES,
    "district": DISTRICTS,
    "job": JOBS,
}
SLIDER = range(50, 1_000, 50)


def is_(column: str, value: str | int) -> str:
    return f"{column} = {value}" if isinstance(value, int) else f"{column} = '{value}'"


def each(column: str) -> list[str]:
    """Conditions that choose one value of a column."""
    return [is_(column, value) for value in VALUES[column]]


def day(number: int) -> str:
    """A day of the clinic's year as SQL."""
    return f"DATE '{datetime.date(2025, 1, 1) + datetime.timedelta(number)}'"


def overview() -> list[Statement]:
    """A tile and three panels, a menu of three diseases, a slider ``cost < x`` of 19 positions."""
    made = []
    for disease in ("diabetes", "flu", "asthma"):
        panels = [Statement((), (ROWS,))]
        panels += [
            Statement((key,), (ROWS,), tail="ORDER BY 1") for key in ("district", "age", "job")
        ]
        panels = where(panels, is_("disease", disease))
        made += panels
        for x in SLIDER:
            made += where(panels, f"cost < {x}")
    return made


def crossfilter() -> list[Statement]:
    """One panel a column: a click on a bar filters the others; two clicks, two filters."""
    panels = {
        "sex": Statement(("sex",), (SMOKERS, SHARE)),
        "age": Statement(("age",), (SMOKERS, SHARE), tail="ORDER BY 1"),
        "district": Statement(("district",), (SMOKERS,)),
        "job": Statement(("job",), (SMOKERS,)),
        "disease": Statement(("disease",), (ROWS,), tail="ORDER BY 2 DESC"),
        "cost": Statement((), (MEAN, ROWS)),
    }

    def clicked(**chosen: str) -> list[Statement]:
        return where((p for key, p in panels.items() if key not in chosen), *chosen.values())

    made = list(panels.values())
    for key in VALUES:
        for condition in each(key):
            made += clicked(**{key: condition})
    for bracket in ("cost < 100", "cost BETWEEN 100 AND 400", "cost > 400"):
        made += where(panels.values(), bracket)
        made += [p for sex in each("sex") for p in where(clicked(sex=sex), bracket)]
    for sex, other in itertools.product(each("sex"), ("district", "age")):
        for condition in each(other):
            made += clicked(sex=sex, **{other: condition})
    return made


def drilldown() -> list[Statement]:
    """From the town to a district, an age in it, and the jobs and sexes of that age."""
    both = (SMOKERS, MEAN)
    made = [Statement((), both), *(Statement((key,), both) for key in VALUES)]
    for district in each("district"):
        made += where((Statement((key,), both) for key in ("age", "job", "sex")), district)
        for age in each("age"):
            made += where((Statement((key,), (SMOKERS,)) for key in ("job", "sex")), district, age)
        for job in each("job"):
            made += where([Statement(("age",), (SMOKERS,))], district, job)
    for age in each("age"):
        made += where([Statement(("job",), both)], age)
    for job, sex in itertools.product(each("job"), each("sex")):
        made += where([Statement(("district",), (SMOKERS,)), Statement((), (MEAN,))], job, sex)
    return made


def series() -> list[Statement]:
    """Months, weeks and days of the week; all patients, and one value of one column at a time."""
    month = "date_trunc('month', visited)"
    week = "date_trunc('week', visited)"
    weekday = "dayofweek(visited)"
    flu = Aggregate(where=("disease = 'flu'",))
    lines = [
        Statement(
            (month,), (flu, Aggregate("SUM", "cost", ("disease = 'flu'",))), tail="ORDER BY 1"
        ),
        Statement((week,), (flu,), tail="ORDER BY 1"),
        Statement((weekday,), (flu,)),
    ]
    made = list(lines)
    for key in VALUES:
        made.append(Statement((month, key), (flu,), tail="ORDER BY 1, 2"))
        for condition in each(key):
            made += where(lines, condition)
    for quarter in range(1, 5):
        period = f"quarter(visited) = {quarter}"
        made += where((Statement((key,), (flu, SHARE)) for key in VALUES), period)
        made += where(lines[1:], period)
        made += [Statement((week,), (SHARE,), (period, sex), "ORDER BY 1") for sex in each("sex")]
        for condition in (*each("district"), *each("sex")):
            made += where([Statement(("age",), (flu,))], period, condition)
            made += where([Statement(("disease",), (ROWS,))], period, condition)
    return made


def ranking() -> list[Statement]:
    """Ten largest, shares of a total, brackets of cost: one page for each disease."""
    made = []
    bracket = "CASE WHEN cost < 100 THEN 'low' WHEN cost < 400 THEN 'middle' ELSE 'high' END"
    top = "ORDER BY n0 DESC LIMIT 10"
    pairs = [pair for pair in itertools.combinations(VALUES, 2) if pair != ("age", "job")]
    for disease in DISEASES[:-1]:
        has = is_("disease", disease)
        ill = Aggregate(where=(has,))
        dear = Aggregate("COUNT", "*", (has, "cost >= 400"), form="case")
        spent = Aggregate("SUM", "cost", (has,), form="case")
        made += [Statement((key,), (ill,), share=True) for key in VALUES]
        made += [Statement((key,), (ill, dear, spent), tail=top) for key in VALUES]
        made += [Statement(pair, (ill,), tail=top) for pair in pairs]
        made += where([Statement((bracket,), (ROWS,))], has)
        made += where([Statement((bracket, key), (ROWS,)) for key in VALUES], has)
        made += [Statement((), (Aggregate("AVG", "cost", (has,)), ill))]
        made += where([Statement(("district",), (ROWS,), share=True)], has, "cost >= 400")
        made += where(
            [Statement((key,), (Aggregate("RATE", "", (has,)),)) for key in ("district", "job")],
            "age >= 60",
        )
    return made


def monitoring() -> list[Statement]:
    """A window of four weeks that moves on by a day, for two months; costs are added up weekly."""
    flu = Aggregate(where=("disease = 'flu'",))
    panels = [
        Statement((), (flu, SHARE)),
        Statement(("district",), (flu,)),
        Statement(("age",), (flu,), tail="ORDER BY 1"),
        Statement(("disease",), (ROWS,)),
    ]
    spent = Statement((), (Aggregate("SUM", "cost", (CHRONIC,)),))
    made = []
    for last in range(60, 120):
        weekly = [spent] if last % 7 == 0 else []
        made += where([*panels, *weekly], f"visited BETWEEN {day(last - 27)} AND {day(last)}")
    return made


BOARDS: dict[str, Callable[[], list[Statement]]] = {
    "overview": overview,
    "cross-filter": crossfilter,
    "drill-down": drilldown,
    "time series": series,
    "ranking": ranking,
    "monitoring": monitoring,
}


def slider(panels: Iterable[str]) -> list[Statement]:
    """The first dashboard with one disease and some of its panels, for small measurements."""
    made = where(
        (Statement((key,) if key else (), (ROWS,)) for key in panels), "disease = 'diabetes'"
    )
    return made + [each for x in SLIDER for each in where(made, f"cost < {x}")]

"""Expressions over the shop's orders, built with ibis and compiled for DuckDB by ibis itself.

The tables are those of ``data.orders``.  Only the text is asked for; ibis runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.suites.data import orders


def compiled() -> dict[str, str]:
    """The text of each expression, by its title."""
    import ibis

    world = orders()
    named = {world.name: world.rows, **world.dimensions}
    tables = {
        name: ibis.table(ibis.Schema.from_pyarrow(rows.schema), name=name)
        for name, rows in named.items()
    }
    found: dict[str, str] = {}
    for part in (_counts, _keys, _groups, _numbers, _windows, _joins, _others):
        for name, expression in part(ibis, tables):
            if name in found:
                raise AssertionError(f"two expressions are called {name!r}")
            found[name] = str(ibis.to_sql(expression, dialect="duckdb"))
    return found


Expressions = Iterator[tuple[str, Any]]
Tables = dict[str, Any]


def _counts(ibis: Any, tables: Tables) -> Expressions:
    t, this = tables["orders"], ibis._
    yield "all rows", t.count()
    yield "rows under a condition", t.filter(t.returned).count()
    yield "count with where", t.count(where=t.payment == "card")
    yield "two filters", t.filter(t.age > 40).filter(t.category == "devices").count()
    yield "not in a list", t.filter(t.complaint.notin(["late", "broken"])).count()
    yield "known values", t.rating.count()
    yield "null values", t.filter(t.complaint.isnull()).count()
    yield "either condition", t.filter((t.returned) | (t.channel == "web")).count()
    yield "text that starts with", t.filter(t.complaint.startswith("b")).count()
    yield "text with a pattern", t.filter(t.payment.re_search("^c")).count()
    yield "between", t.filter(t.income.between(30, 60)).agg(n=this.count(), spent=this.sales.sum())
    yield "distinct public values", t.customer_id.nunique()
    yield "distinct with where", t.customer_id.nunique(where=t.returned)
    yield "distinct after a filter", t.filter(t.payment == "cash").customer_id.nunique()
    yield "distinct sensitive values", t.payment.nunique()


def _keys(ibis: Any, tables: Tables) -> Expressions:
    t, this = tables["orders"], ibis._
    yield "value counts", t.category.value_counts().order_by("category")
    yield "value counts of a sensitive column", t.payment.value_counts()
    yield "top of a column", t.filter(t.returned).product.topk(3)
    yield "distinct values", t.select("payment").distinct()
    yield "distinct public pairs", t.select("region", "country").distinct()
    yield "distinct after a sensitive filter", t.filter(t.returned).select("product").distinct()
    filtered = t.filter(t.gender == "f").group_by("channel").agg(n=this.count())
    yield "one key of several selected", filtered.select("channel")


def _groups(ibis: Any, tables: Tables) -> Expressions:
    t, this = tables["orders"], ibis._
    yield "count by a public key", t.group_by("category").agg(n=t.count()).order_by("category")
    yield "count by a sensitive key", t.group_by("payment").agg(n=t.count()).order_by("payment")
    both = t.group_by(["region", "gender"]).agg(n=this.count(), spent=this.sales.sum())
    yield "both kinds of keys", both.order_by(["region", "gender"])
    decade = t.mutate(decade=(t.age // 10) * 10).group_by("decade").agg(n=this.count())
    yield "computed key", decade.order_by("decade")
    bands = ibis.cases((t.age < 30, "young"), (t.age < 60, "middle"), else_="old")
    yield "case as key", t.group_by(band=bands).agg(n=this.count()).order_by("band")
    month = t.group_by(month=t.ordered.truncate("M")).agg(returns=this.returned.sum())
    yield "months", month.order_by("month")
    year = t.group_by(year=t.ordered.year()).agg(age=this.age.mean(), n=this.count())
    yield "years", year.order_by("year")
    having = t.filter(t.returned).group_by("product").agg(n=this.count()).filter(this.n > 200)
    yield "filter of groups", having
    top = t.group_by("country").agg(returns=this.count(where=this.returned))
    yield "order and limit", top.order_by(ibis.desc("returns")).limit(3)
    share = t.group_by("product").agg(rate=this.returned.cast("int").mean())
    yield "rate", share.order_by("product")
    buyers = t.group_by("payment").agg(buyers=this.customer_id.nunique())
    yield "distinct by a sensitive key", buyers.order_by("payment")
    active = t.filter(t.rating >= 4).group_by("region").agg(buyers=this.customer_id.nunique())
    yield "distinct by a public key under a condition", active.order_by("region")
    wide = t.group_by("category").agg(
        card=this.count(where=this.payment == "card"),
        cash=this.count(where=this.payment == "cash"),
        sales=this.sales.sum(where=this.gender == "f"),
    )
    yield "conditions as columns", wide.order_by("category")
    nested = t.group_by(["region", "country"]).agg(n=this.count(where=this.returned))
    yield "groups of groups", nested.group_by("region").agg(total=this.n.sum()).order_by("region")
    extreme = t.filter(t.payment == "card").group_by("category").agg(most=this.sales.max())
    yield "largest under a condition", extreme
    yield "first date by a sensitive key", t.group_by("gender").agg(first=this.ordered.min())
    beside = t.group_by("channel").agg(last=this.ordered.max(), returns=this.returned.sum())
    yield "largest beside an estimate", beside.order_by("channel")


def _numbers(ibis: Any, tables: Tables) -> Expressions:
    t, this = tables["orders"], ibis._
    yield "mean", t.age.mean()
    yield "sum under a condition", t.filter(t.complaint == "late").sales.sum()
    yield "spread", t.agg(s=t.age.std(), v=t.income.var(how="pop"))
    yield "correlation", t.age.corr(t.profit, how="pop")
    yield "covariance", t.age.cov(t.profit, how="pop")
    yield "median", t.age.median()
    yield "quantile", t.group_by("region").agg(q=this.income.quantile(0.9)).order_by("region")
    yield "several quantiles", t.age.quantile([0.25, 0.75])
    yield "median of a public column under a condition", t.filter(t.returned).sales.median()
    ratio = t.group_by("channel").agg(r=this.sales.sum(where=this.returned) / this.sales.sum())
    yield "ratio of sums", ratio.order_by("channel")
    yield "smallest and largest", t.agg(low=t.ordered.min(), high=t.ordered.max())


def _windows(ibis: Any, tables: Tables) -> Expressions:
    t, this = tables["orders"], ibis._
    paid = t.group_by("payment").agg(n=this.count())
    yield "share by a window", paid.mutate(share=this.n / this.n.sum().over(ibis.window()))
    monthly = t.group_by(month=t.ordered.truncate("M")).agg(n=this.count(where=this.returned))
    yield "running total", monthly.mutate(so_far=this.n.cumsum(order_by="month"))
    lagged = this.n - this.n.lag().over(ibis.window(order_by="month"))
    yield "difference to the month before", monthly.mutate(change=lagged)


def _joins(ibis: Any, tables: Tables) -> Expressions:
    t, this = tables["orders"], ibis._
    countries, products, complaints = (tables[n] for n in ("countries", "products", "complaints"))
    inner = t.join(countries, "country").filter(this.returned)
    yield "inner join", inner.group_by("continent").agg(n=this.count()).order_by("continent")
    left = t.left_join(products, "product").group_by("maker").agg(age=this.age.mean())
    yield "left join", left.order_by("maker")
    teams = t.join(complaints, t.complaint == complaints.complaint).group_by("team")
    yield "join of a sensitive key", teams.agg(n=this.count()).order_by("team")
    semi = t.semi_join(products.filter(products.list_price > 100), "product")
    yield "semi join", semi.group_by("payment").agg(n=this.count()).order_by("payment")
    anti = t.anti_join(countries.filter(countries.continent == "Europe"), "country")
    yield "anti join", anti.group_by("channel").agg(age=this.age.mean()).order_by("channel")
    firsts = t.group_by("customer_id").agg(first=this.ordered.min())
    cohorts = t.join(firsts, "customer_id").group_by(cohort=this.first.year())
    yield "cohorts", cohorts.agg(returns=this.returned.sum()).order_by("cohort")
    small = countries.filter(countries.people < 50)
    yield "join of a filtered dimension", t.join(small, "country").filter(this.returned).count()


def _others(ibis: Any, tables: Tables) -> Expressions:
    t, this = tables["orders"], ibis._
    dear = t.filter(t.sales > t.sales.mean())
    yield "above an exact mean", dear.group_by("payment").agg(n=this.count()).order_by("payment")
    known = t.filter(t.product.isin(tables["products"].filter(this.maker == "Ash").product))
    yield "in a public table", known.count(where=known.returned)
    recent = t.filter(t.ordered < ibis.today()).agg(age=this.age.mean())
    yield "until today", recent
    total = t.filter(t.returned).agg(label=ibis.literal("all"), n=this.count())
    parts = t.filter(t.returned).group_by(label=this.category).agg(n=this.count())
    yield "union of answers", parts.union(total)

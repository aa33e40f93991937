"""The tables behind the suites: raw rows, public dimensions, and releases of the raw rows.

Each world has one published table and some public tables beside it.  Rows are drawn with a fixed
seed.  Identifiers repeat one to three times: that is what distinct counts under a sensitive
condition can be estimated for.  Every value of a domain occurs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import privsql
from tests.specs import grid, measure, public, sensitive, spec

Rng = np.random.Generator
RETENTIONS = (1.0, 0.5)
POLICY = '[policy]\npersonal_groups = "allow"\nmin_rows = 0\n'


@dataclass(frozen=True)
class World:
    """A raw table, public tables, and which columns are sensitive, with their domains."""

    name: str
    rows: pa.Table
    dimensions: dict[str, pa.Table]
    domains: dict[str, Any]
    measures: tuple[str, ...]

    def spec(self, retention: float) -> str:
        """What the publisher would write."""
        columns = []
        for name in self.rows.column_names:
            if name in self.domains:
                kept = sensitive(name, retention, self.domains[name], accept_epsilon=True)
                columns.append(kept)
            elif name in self.measures:
                columns.append(measure(name, accept_unique=True))
            else:
                columns.append(public(name))
        return spec(self.name, *columns, more=POLICY)

    def publish(self, folder: Path, retention: float) -> Path:
        """A release of the rows; the same every time."""
        source, text = folder / f"{self.name}.parquet", folder / f"{self.name}-{retention}.toml"
        out = folder / f"{self.name}-{retention}.duckdb"
        pq.write_table(self.rows, source)
        text.write_text(self.spec(retention))
        privsql.publish(str(source), out, spec=text, seed=18)
        return out

    def raw(self, shuffled: bool = False) -> duckdb.DuckDBPyConnection:
        """DuckDB with the raw tables; ``shuffled``: their rows in another order."""
        con = duckdb.connect(config={"threads": 1})
        for name, table in {self.name: self.rows, **self.dimensions}.items():
            con.register("given", table)
            order = " ORDER BY hash(given)" if shuffled else ""
            con.execute(f"CREATE TABLE {name} AS SELECT * FROM given{order}")
        con.unregister("given")
        return con


def _pick(rng: Rng, values: Any, rows: int, nulls: float = 0.0) -> list[Any]:
    """Values, the first ones somewhat more often."""
    shares = 1.0 / np.arange(2, len(values) + 2) ** 0.6
    codes = rng.choice(len(values), rows, p=shares / shares.sum())
    holes = rng.random(rows) < nulls
    return [None if hole else values[code] for code, hole in zip(codes, holes, strict=True)]


def _ids(rng: Rng, rows: int, first: int) -> np.ndarray[Any, Any]:
    """Identifiers with one, two or three rows each."""
    many = rng.choice([1, 2, 3], rows, p=[0.6, 0.3, 0.1])
    return rng.permutation(np.repeat(np.arange(rows) * 7 + first, many)[:rows])


def _days(rng: Rng, rows: int, first: date, days: int) -> list[date]:
    return [first + timedelta(days=int(day)) for day in rng.integers(0, days, rows)]


def _later(rng: Rng, days: list[date], least: int, most: int) -> list[date]:
    waits = rng.integers(least, most, len(days))
    return [day + timedelta(days=int(wait)) for day, wait in zip(days, waits, strict=True)]


def _money(rng: Rng, rows: int, most: int) -> pa.Array[Any]:
    values = [Decimal(int(cents)) / 100 for cents in rng.integers(100, most * 100, rows)]
    return pa.array(values, pa.decimal128(12, 2))


def _numbered(values: list[str], nullable: bool = True) -> dict[str, Any]:
    return {"values": values, "nullable": nullable}


PHRASES = [
    "",
    "cheap flights",
    "weather tomorrow",
    "used bicycle",
    "rent a flat",
    "back pain",
    "train times",
    "bicycle repair",
    "loan without bank",
    "garden chairs",
]
TOPICS = ["news", "sport", "health", "money", "travel", "games"]
PHONES = ["", "Alder 5", "Alder 6", "Birch One", "Birch Two", "Cedar"]
BROWSERS = ["Fox", "Lynx", "Otter", "Wolf"]
SYSTEMS = ["desk", "mob", "tab"]
PATHS = ["/", "/news", "/news/city", "/shop", "/shop/cart", "/help", "/maps/route", "/mail"]
HOSTS = ["http://alpha.example", "https://beta.example", "https://www.gamma.example"]


def hits(rows: int = 8_000, seed: int = 181) -> World:
    """Page views of several sites, one wide table."""
    rng = np.random.default_rng(seed)
    start = datetime(2023, 7, 1)
    seconds = np.sort(rng.integers(0, 31 * 86_400, rows))
    times = [start + timedelta(seconds=int(each)) for each in seconds]
    urls = [f"{host}{path}" for host in HOSTS for path in PATHS]
    url = _pick(rng, urls, rows)
    referrers = ["", *urls[::5], "https://find.example/q", "https://social.example/p"]
    ages = np.clip(rng.normal(41, 14, rows).round(), 18, 79).astype(int)
    columns = {
        "view_id": pa.array(rng.permutation(rows) + 10_000_000, pa.int64()),
        "visitor": pa.array(_ids(rng, rows, 500), pa.int64()),
        "session": pa.array(_ids(rng, rows, 90_000), pa.int64()),
        "seen_at": pa.array(times, pa.timestamp("us")),
        "day": pa.array([each.date() for each in times], pa.date32()),
        "site": pa.array(_pick(rng, [11, 12, 19, 34, 62], rows), pa.int32()),
        "region": pa.array(_pick(rng, list(range(1, 9)), rows), pa.int32()),
        "url": pa.array(url, pa.string()),
        "title": pa.array([f"Page {each.rsplit('/', 1)[1] or 'home'}" for each in url]),
        "referrer": pa.array(_pick(rng, referrers, rows), pa.string()),
        "browser": pa.array(_pick(rng, BROWSERS, rows), pa.string()),
        "system": pa.array(_pick(rng, SYSTEMS, rows), pa.string()),
        "width": pa.array(_pick(rng, [360, 414, 768, 1280, 1440, 1920], rows), pa.int32()),
        "height": pa.array(_pick(rng, [640, 800, 900, 1080], rows), pa.int32()),
        "load_ms": pa.array(rng.gamma(3, 200, rows).astype(int), pa.int32()),
        "bytes": pa.array(rng.integers(500, 90_000, rows), pa.int64()),
        "is_refresh": pa.array(rng.random(rows) < 0.15, pa.bool_()),
        "revenue": _money(rng, rows, 40),
        # Sensitive from here on.
        "phrase": pa.array(_pick(rng, PHRASES, rows), pa.string()),
        "engine": pa.array(rng.choice([0, 1, 2, 3], rows, p=[0.6, 0.2, 0.1, 0.1]), pa.int32()),
        "phone": pa.array(_pick(rng, PHONES, rows), pa.string()),
        "topic": pa.array(_pick(rng, TOPICS, rows, 0.05), pa.string()),
        "age": pa.array(ages, pa.int32()),
        "sex": pa.array(_pick(rng, ["f", "m", "x"], rows), pa.string()),
        "income": pa.array(_pick(rng, list(range(0, 100, 10)), rows), pa.int32()),
        "ad_clicked": pa.array(rng.random(rows) < 0.3, pa.bool_()),
    }
    domains = {
        "phrase": PHRASES,
        "engine": grid(0, 3),
        "phone": PHONES,
        "topic": _numbered(TOPICS),
        "age": grid(18, 79),
        "sex": ["f", "m", "x"],
        "income": grid(0, 90, 10),
        "ad_clicked": [False, True],
    }
    measures = ("view_id", "visitor", "session", "seen_at", "load_ms", "bytes", "revenue")
    return World("hits", pa.table(columns), {}, domains, measures)


REGIONS = ["africa", "america", "asia", "europe"]
NATIONS = {
    "kenya": 0, "egypt": 0, "brazil": 1, "canada": 1, "japan": 2, "india": 2, "france": 3,
    "poland": 3,
}  # fmt: skip
SEGMENTS = ["builders", "farms", "homes", "mills"]
MATERIALS = ["brass", "copper", "nickel", "steel"]
FINISHES = ["large plated", "small polished", "medium brushed", "economy plated"]


def warehouse(rows: int = 8_000, seed: int = 182) -> World:
    """Order lines as the published fact table, everything around them public."""
    rng = np.random.default_rng(seed)
    orders, customers, suppliers, products = 2_000, 240, 24, 120
    placed = _days(rng, orders, date(1995, 1, 1), 1_400)
    of = rng.integers(0, orders, rows)
    shipped = _later(rng, [placed[i] for i in of], 1, 90)
    due = _later(rng, [placed[i] for i in of], 20, 80)
    got = _later(rng, shipped, 1, 30)
    supplier = rng.integers(0, suppliers, rows)
    product = (supplier * 5 + rng.integers(0, 20, rows)) % products
    nations = list(NATIONS)
    lines = {
        "order_id": pa.array(of + 1, pa.int64()),
        "line_no": pa.array(rng.permutation(rows) + 1, pa.int64()),
        "product_id": pa.array(product + 1, pa.int64()),
        "supplier_id": pa.array(supplier + 1, pa.int64()),
        "price": _money(rng, rows, 900),
        "shipped": pa.array(shipped, pa.date32()),
        "due": pa.array(due, pa.date32()),
        "received": pa.array(got, pa.date32()),
        "mode": pa.array(_pick(rng, ["truck", "ship", "rail", "air", "mail"], rows), pa.string()),
        "instruct": pa.array(_pick(rng, ["none", "in person", "collect"], rows), pa.string()),
        # Sensitive from here on.
        "quantity": pa.array(rng.integers(1, 41, rows), pa.int32()),
        "discount": pa.array(rng.integers(0, 11, rows), pa.int32()),
        "tax": pa.array(rng.integers(0, 9, rows), pa.int32()),
        "flag": pa.array(_pick(rng, ["kept", "returned", "open"], rows), pa.string()),
    }
    pairs = sorted({*zip(product.tolist(), supplier.tolist(), strict=True)})
    dimensions = {
        "orders": pa.table(
            {
                "order_id": pa.array(range(1, orders + 1), pa.int64()),
                "customer_id": pa.array(rng.integers(1, customers - 20, orders), pa.int64()),
                "placed": pa.array(placed, pa.date32()),
                "priority": _pick(rng, ["1-urgent", "2-high", "3-medium", "4-low"], orders),
                "status": _pick(rng, ["done", "part", "open"], orders),
                "total": _money(rng, orders, 4_000),
                "remark": _pick(rng, ["none", "special wrapping", "call first"], orders),
            }
        ),
        "customers": pa.table(
            {
                "customer_id": pa.array(range(1, customers + 1), pa.int64()),
                "customer": [f"Customer {i:04}" for i in range(1, customers + 1)],
                "nation_id": pa.array(rng.integers(0, len(nations), customers), pa.int64()),
                "segment": _pick(rng, SEGMENTS, customers),
                "balance": _money(rng, customers, 9_000),
                "phone": [f"{n}-{i}" for i, n in enumerate(rng.integers(10, 18, customers))],
            }
        ),
        "suppliers": pa.table(
            {
                "supplier_id": pa.array(range(1, suppliers + 1), pa.int64()),
                "supplier": [f"Supplier {i:03}" for i in range(1, suppliers + 1)],
                "nation_id": pa.array(np.arange(suppliers) % len(nations), pa.int64()),
                "balance": _money(rng, suppliers, 9_000),
                "note": _pick(rng, ["good", "late deliveries", "customer complaints"], suppliers),
            }
        ),
        "products": pa.table(
            {
                "product_id": pa.array(range(1, products + 1), pa.int64()),
                "product": [
                    f"{a} {b}"
                    for a, b in zip(
                        _pick(rng, ["green", "blue", "ivory", "plum"], products),
                        _pick(rng, ["lamp", "table", "hinge"], products),
                        strict=True,
                    )
                ],
                "maker": [f"Maker {n}" for n in rng.integers(1, 6, products)],
                "brand": [f"Brand {n}" for n in rng.integers(11, 19, products)],
                "kind": [
                    f"{a} {b}"
                    for a, b in zip(
                        _pick(rng, FINISHES, products),
                        _pick(rng, MATERIALS, products),
                        strict=True,
                    )
                ],
                "size": pa.array(rng.integers(1, 21, products), pa.int32()),
                "container": _pick(rng, ["small box", "large box", "drum", "bag"], products),
                "retail": _money(rng, products, 900),
            }
        ),
        "offers": pa.table(
            {
                "product_id": pa.array([p + 1 for p, _ in pairs], pa.int64()),
                "supplier_id": pa.array([s + 1 for _, s in pairs], pa.int64()),
                "available": pa.array(rng.integers(1, 999, len(pairs)), pa.int32()),
                "supply_cost": _money(rng, len(pairs), 300),
            }
        ),
        "nations": pa.table(
            {
                "nation_id": pa.array(range(len(nations)), pa.int64()),
                "nation": nations,
                "region_id": pa.array(list(NATIONS.values()), pa.int64()),
            }
        ),
        "regions": pa.table(
            {"region_id": pa.array(range(len(REGIONS)), pa.int64()), "region": REGIONS}
        ),
    }
    domains = {
        "quantity": grid(1, 40),
        "discount": grid(0, 10),
        "tax": grid(0, 8),
        "flag": ["kept", "returned", "open"],
    }
    measures = (
        "order_id", "line_no", "product_id", "supplier_id", "price", "shipped", "due", "received"
    )  # fmt: skip
    return World("lines", pa.table(lines), dimensions, domains, measures)


MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def star(rows: int = 12_000, seed: int = 183) -> World:
    """A fact table with four dimensions."""
    rng = np.random.default_rng(seed)
    days = [date(1993, 1, 1) + timedelta(days=i) for i in range(4 * 365 + 1)]
    buyers, vendors, parts = 160, 40, 96
    nations = list(NATIONS)

    def places(many: int) -> dict[str, Any]:
        nation = [nations[i % len(nations)] for i in range(many)]
        city = [f"{name}{(i // len(nations)) % 3}" for i, name in enumerate(nation)]
        return {"city": city, "nation": nation, "region": [REGIONS[NATIONS[n]] for n in nation]}

    cost = rng.integers(2_000, 9_000, rows)
    price = cost + rng.integers(500, 5_000, rows)
    facts = {
        "sale_id": pa.array(rng.permutation(rows) + 1, pa.int64()),
        "day_id": pa.array([int(f"{days[i]:%Y%m%d}") for i in rng.integers(0, len(days), rows)]),
        "buyer_id": pa.array(rng.integers(1, buyers + 1, rows), pa.int64()),
        "vendor_id": pa.array(rng.integers(1, vendors + 1, rows), pa.int64()),
        "part_id": pa.array(rng.integers(1, parts + 1, rows), pa.int64()),
        "price": pa.array(price, pa.int64()),
        "cost": pa.array(cost, pa.int64()),
        # Sensitive from here on.
        "quantity": pa.array(rng.integers(1, 51, rows), pa.int32()),
        "discount": pa.array(rng.integers(0, 11, rows), pa.int32()),
        "terms": pa.array(_pick(rng, ["cash", "credit", "lease"], rows), pa.string()),
    }
    category = [f"M#{i % 3 + 1}{i // 3 % 4 + 1}" for i in range(parts)]
    dimensions = {
        "days": pa.table(
            {
                "day_id": pa.array([int(f"{day:%Y%m%d}") for day in days], pa.int64()),
                "day": pa.array(days, pa.date32()),
                "year": pa.array([day.year for day in days], pa.int32()),
                "month_no": pa.array([day.year * 100 + day.month for day in days], pa.int32()),
                "month": [f"{MONTHS[day.month - 1]}{day.year}" for day in days],
                "week": pa.array([day.isocalendar()[1] for day in days], pa.int32()),
            }
        ),
        "buyers": pa.table(
            {"buyer_id": pa.array(range(1, buyers + 1), pa.int64()), **places(buyers)}
        ),
        "vendors": pa.table(
            {"vendor_id": pa.array(range(1, vendors + 1), pa.int64()), **places(vendors)}
        ),
        "parts": pa.table(
            {
                "part_id": pa.array(range(1, parts + 1), pa.int64()),
                "maker": [each[:3] for each in category],
                "category": category,
                "brand": [f"{each}{i // 12 % 4 + 1}" for i, each in enumerate(category)],
            }
        ),
    }
    domains = {
        "quantity": grid(1, 50),
        "discount": grid(0, 10),
        "terms": ["cash", "credit", "lease"],
    }
    measures = ("sale_id", "day_id", "buyer_id", "vendor_id", "part_id", "price", "cost")
    return World("sales", pa.table(facts), dimensions, domains, measures)


PRODUCTS = {
    "desk": "furniture", "chair": "furniture", "shelf": "furniture", "phone": "devices",
    "laptop": "devices", "camera": "devices", "paper": "supplies", "pens": "supplies",
}  # fmt: skip
COUNTRIES = {
    "AT": ("central", "Europe"), "DE": ("central", "Europe"), "FR": ("west", "Europe"),
    "ES": ("west", "Europe"), "US": ("east", "Americas"), "BR": ("south", "Americas"),
}  # fmt: skip
REASONS = ["none", "late", "broken", "wrong item", "rude staff"]


def orders(rows: int = 9_000, seed: int = 184) -> World:
    """Orders of a shop over three years, as a dashboard sees them."""
    rng = np.random.default_rng(seed)
    country = _pick(rng, list(COUNTRIES), rows)
    product = _pick(rng, list(PRODUCTS), rows)
    ordered = sorted(_days(rng, rows, date(2022, 1, 1), 3 * 365 + 1))
    shipped = [
        None if n > 12 else day + timedelta(days=int(n))
        for day, n in zip(ordered, rng.integers(0, 14, rows), strict=True)
    ]
    sales = _money(rng, rows, 500)
    age = np.clip(rng.normal(44, 13, rows).round(), 18, 77).astype(int)
    columns = {
        "order_id": pa.array(np.arange(rows) + 1_000, pa.int64()),
        "customer_id": pa.array(_ids(rng, rows, 300), pa.int64()),
        "ordered": pa.array(ordered, pa.date32()),
        "shipped": pa.array(shipped, pa.date32()),
        "region": pa.array([COUNTRIES[each][0] for each in country], pa.string()),
        "country": pa.array(country, pa.string()),
        "channel": pa.array(_pick(rng, ["web", "shop", "phone"], rows), pa.string()),
        "category": pa.array([PRODUCTS[each] for each in product], pa.string()),
        "product": pa.array(product, pa.string()),
        "items": pa.array(rng.integers(1, 9, rows), pa.int32()),
        "sales": sales,
        "profit": pa.array(rng.normal(30, 60, rows).round(2), pa.float64()),
        # Sensitive from here on.
        "age": pa.array(age, pa.int32()),
        "gender": pa.array(_pick(rng, ["f", "m", "x"], rows), pa.string()),
        "payment": pa.array(_pick(rng, ["card", "invoice", "cash", "voucher"], rows), pa.string()),
        "income": pa.array(_pick(rng, list(range(10, 130, 10)), rows), pa.int32()),
        "returned": pa.array(rng.random(rows) < 0.25, pa.bool_()),
        "complaint": pa.array(_pick(rng, REASONS, rows, 0.04), pa.string()),
        "rating": pa.array(_pick(rng, [5, 4, 3, 2, 1], rows, 0.06), pa.int32()),
    }
    dimensions = {
        "countries": pa.table(
            {
                "country": list(COUNTRIES),
                "country_name": ["Austria", "Germany", "France", "Spain", "USA", "Brazil"],
                "continent": [continent for _, continent in COUNTRIES.values()],
                "people": pa.array([9, 84, 68, 48, 335, 212], pa.int32()),
            }
        ),
        "products": pa.table(
            {
                "product": list(PRODUCTS),
                "maker": ["Ash", "Ash", "Elm", "Fir", "Fir", "Oak", "Oak", "Elm"],
                "launched": pa.array([date(2015 + i, 3, 1) for i in range(8)], pa.date32()),
                "list_price": pa.array([220.0, 90.0, 60.0, 700.0, 1200.0, 450.0, 8.0, 5.0]),
            }
        ),
        "complaints": pa.table(
            {
                "complaint": REASONS,
                "severity": pa.array([0, 1, 3, 2, 2], pa.int32()),
                "team": ["nobody", "logistics", "quality", "logistics", "people"],
            }
        ),
        "targets": pa.table(
            {
                "category": ["furniture", "devices", "supplies"],
                "target": pa.array([250_000.0, 240_000.0, 120_000.0]),
            }
        ),
    }
    domains = {
        "age": grid(18, 77),
        "gender": ["f", "m", "x"],
        "payment": ["card", "invoice", "cash", "voucher"],
        "income": grid(10, 120, 10),
        "returned": [False, True],
        "complaint": _numbered(REASONS),
        "rating": {**grid(1, 5), "nullable": True},
    }
    measures = ("order_id", "customer_id", "ordered", "shipped", "items", "sales", "profit")
    return World("orders", pa.table(columns), dimensions, domains, measures)


WORLDS: dict[str, Callable[[], World]] = {
    "web": hits,
    "warehouse": warehouse,
    "star": star,
    "bi": orders,
    "ibis": orders,
}

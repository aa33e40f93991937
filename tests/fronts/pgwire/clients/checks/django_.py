"""Django: inspectdb, models over an existing table, querysets, aggregates, transactions."""

import contextlib
import io
import re

import django
from django.conf import settings
from report import (
    ERRORS,
    ESTIMATE,
    ROW,
    ROWS,
    SELECT,
    VALUES,
    check,
    failed,
    summed,
    typed,
    variables,
    version,
)

host, port, user, password, database = variables()
version(django.get_version())
ENGINE = {
    "ENGINE": "django.db.backends.postgresql", "HOST": host, "PORT": port,
    "USER": user, "NAME": database, "PASSWORD": password,
}  # fmt: skip
settings.configure(
    DATABASES={"default": ENGINE, "wrong": {**ENGINE, "PASSWORD": "wrong"}}, USE_TZ=False,
    INSTALLED_APPS=["django.contrib.contenttypes"], DEFAULT_AUTO_FIELD="django.db.models.AutoField",
)  # fmt: skip
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, connections, models, transaction  # noqa: E402
from django.db.models import Avg, Count, F, Max, Q, Sum  # noqa: E402
from django.db.models.functions import TruncMonth  # noqa: E402


class Sale(models.Model):
    id = models.BigIntegerField(primary_key=True)
    region = models.TextField()
    qty = models.BigIntegerField()
    amount = models.FloatField()
    price = models.DecimalField(max_digits=10, decimal_places=2)
    day = models.DateField()
    ts = models.DateTimeField()
    member = models.UUIDField()
    active = models.BooleanField()
    note = models.TextField(null=True)
    illness = models.TextField()

    class Meta:
        managed = False
        db_table = "sales"
        app_label = "contenttypes"


def code(problem):
    return problem.__cause__.sqlstate or "password authentication failed" in str(problem)


def rows(text, values=None):
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return [list(row) for row in cursor.fetchall()]


def written(*words, **options):
    target = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):
        call_command(*words, stdout=target, **options)
    return target.getvalue()


sales = Sale.objects
check("password")(lambda: failed(connections["wrong"].ensure_connection, code))
check("connect")(lambda: rows("select current_user, current_database()"))
check("tables")(lambda: [connection.introspection.table_names(), connection.pg_version >= 150000])
check("inspectdb")(
    lambda: [
        re.sub(r", db_comment='[^']*'", "", line)  # a release says how each column was published
        for line in written("inspectdb", "sales").splitlines()
        if " = models." in line
    ]
)
check("keys")(lambda: connection.introspection.get_constraints(connection.cursor(), "sales"))
check("select")(lambda: list(sales.values_list("region").annotate(n=Count("*")).order_by("region")))
check("raw select")(lambda: rows(SELECT))
check("types")(
    lambda: [
        typed(rows(ROW)[0]),
        typed(sales.values_list("member", "price", "ts", "day").get(id=7)),
    ]
)
check("parameters")(
    lambda: {name: sales.filter(**{name: value}).count() for name, value in VALUES.items()}
)
check("in")(
    lambda: [
        sales.filter(qty__in=[1, 2]).count(),
        rows("select count(*) from sales where qty in (%s,%s)", [1, 2]),
    ]
)
check("any")(lambda: rows("select count(*) from sales where qty = any(%s)", [[1, 2]]))
check("nulls")(lambda: [sales.filter(note__isnull=True).count(), sales.get(id=4).note])
check("aggregates")(
    lambda: [
        str(v)
        for v in sales.filter(price__gt=10)
        .aggregate(Sum("price"), Max("ts"), Count("note"), a=Avg("amount"))
        .values()
    ]
)
check("months")(
    lambda: list(
        sales.annotate(m=TruncMonth("ts"))
        .values("m")
        .annotate(n=Count("id"), t=Sum(F("qty")))
        .order_by("m")
    )
)
check("filters")(
    lambda: sales.filter(
        Q(note__icontains="NÄH") | Q(day__month=1), ts__hour=12, region__startswith="n"
    ).count()
)
check("exists")(
    lambda: [
        sales.filter(qty=3).exists(),
        sales.filter(qty=99).exists(),
        sales.filter(id=7).first().region,
    ]
)
check("rows")(lambda: [sale.id for sale in sales.order_by("-id")[2:5]])
check("cursor")(lambda: summed(sales.order_by("id").values_list("id").iterator(chunk_size=200)))
check("errors")(lambda: [failed(lambda text=text: rows(text), code) for text in ERRORS])


@check("transaction")
def _():
    with transaction.atomic():
        try:
            with transaction.atomic():
                rows("select nosuch from sales")
        except django.db.Error as problem:
            return [code(problem), sales.count(), len(rows(ROWS))]


check("estimate")(lambda: rows(ESTIMATE)[0][0])
check("estimate of a queryset")(lambda: sales.filter(illness="flu").count())
connections.close_all()

"""Keywords of the shell, for completion and colours."""

from __future__ import annotations

from dataclasses import fields

from privsql.session.settings import ESTIMATORS, Settings
from privsql.sql.bind.aggregates import LINEAR, ORDERED, SPREADS
from privsql.sql.bind.block import OURS

# What a statement begins with.
BEGINNINGS = (
    *("SELECT", "WITH", "EXPLAIN RECONSTRUCTION", "SET", "SHOW", "RESET"),
    *("DESCRIBE", "SHOW TABLES", "SUMMARIZE"),
)
KEYWORDS = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "QUALIFY", "ORDER BY", "LIMIT"),
    *("OFFSET", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "IS", "NULL", "TRUE"),
    *("FALSE", "AS", "ASC", "DESC", "NULLS FIRST", "NULLS LAST", "CASE", "WHEN", "THEN", "ELSE"),
    *("END", "JOIN", "LEFT JOIN", "ON", "USING", "WITH", "UNION ALL", "UNION", "EXCEPT"),
    *("INTERSECT", "FILTER", "OVER", "PARTITION BY", "ROLLUP", "CUBE", "GROUPING SETS", "ALL"),
    *("EXISTS", "INTERVAL", "DATE", "TIMESTAMP", "CAST", "EXPLAIN RECONSTRUCTION", "SET", "SHOW"),
    *("RESET", "WITH RECONSTRUCTION OPTIONS"),
)
AGGREGATES = (*LINEAR, *SPREADS, *ORDERED, "mode", "min", "max", "stddev", "variance")
SCALARS = (
    *("abs", "ceil", "coalesce", "concat", "contains", "date_diff", "date_part", "date_trunc"),
    *("day", "dayname", "dayofweek", "exp", "extract", "floor", "greatest", "hour", "least"),
    *("left", "length", "ln", "log10", "lower", "month", "monthname", "nullif", "power"),
    *("quarter", "regexp_matches", "replace", "right", "round", "sign", "sqrt", "starts_with"),
    *("strftime", "substr", "trim", "trunc", "upper", "week", "year"),
)
OURS_NAMES = tuple(f"privsql_{name}" for name in OURS)
FUNCTIONS = (*AGGREGATES, *OURS_NAMES, *SCALARS)

SHORT = tuple(field.name for field in fields(Settings))
SETTINGS = tuple(f"privsql.{name}" for name in SHORT)
CHOICES = {
    "privsql.estimator": tuple(f"'{name}'" for name in ESTIMATORS),
    "privsql.confidence_level": ("0.9", "0.95", "0.99"),
    "privsql.error_bars": ("true", "false"),
    "privsql.simultaneous": ("true", "false"),
}
# Words, each alone, that are coloured as keywords.
COLOURED = frozenset(
    word.casefold() for each in (*KEYWORDS, *BEGINNINGS) for word in each.split(" ")
) | {"by"}

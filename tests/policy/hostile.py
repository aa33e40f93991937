"""Statements that are meant to hurt: long, deep, or with far more work than they look."""

from __future__ import annotations

from collections.abc import Callable

Q = "SELECT COUNT(*) FROM patients WHERE "
FLU = Q + "disease = 'flu'"


def nested(head: str, inner: str, tail: str, times: int) -> str:
    """``head`` and ``tail`` many times around something."""
    return head * times + inner + tail * times


def many(one: Callable[[int], str], times: int, glue: str) -> str:
    """Many of a kind, one after the other."""
    return glue.join(one(i) for i in range(times))


def _deep(times: int) -> dict[str, str]:
    return {
        "parentheses": Q + nested("(", "age > 3", ")", times),
        "NOT (": Q + nested("NOT (", "age > 3", ")", times),
        "NOT NOT": Q + "NOT " * times + "age > 3",
        "minus": Q + "age > " + "- " * times + "3",
        "CASE": Q + nested("CASE WHEN age > 3 THEN ", "TRUE", " END", times),
        "CASE ELSE": Q + nested("CASE WHEN age > 3 THEN FALSE ELSE ", "TRUE", " END", times),
        "sub-selects": Q + nested("job IN (SELECT job FROM jobs WHERE ", "TRUE", ")", times),
        "scalars": "SELECT " + nested("(SELECT ", "1", ")", times),
        "FROM": nested("SELECT * FROM (", "SELECT COUNT(*) AS n FROM patients", ")", times),
        "WITH": nested("WITH a AS (", FLU, ") SELECT * FROM a", times),
        "functions": Q + nested("abs(", "age", ")", times) + " > 3",
        "lists": "SELECT " + nested("[", "1", "]", times),
        "structures": "SELECT " + nested("{'a': ", "1", "}", times),
        "types": "SELECT CAST(NULL AS " + nested("STRUCT(a ", "INT", ")", times) + ")",
        "arrays": "SELECT CAST(NULL AS INT" + "[]" * times + ")",
        "casts": Q + "age" + "::INT" * times + " > 3",
        "brackets": "SELECT [1]" + "[1:1]" * times,
        "dots": "SELECT " + ".".join(["a"] * times) + " FROM patients",
        "IS NULL": Q + "disease" + " IS NULL" * times,
        "lambdas": "SELECT list_transform([1], " + "x -> " * times + "1)",
        "lambda words": "SELECT list_transform([1], " + "lambda x: " * times + "1)",
        "AND": Q + " AND ".join(["age > 3"] * times),
        "OR": Q + " OR ".join(["job = 'eng'"] * times),
        "AND OR": Q + "job = 'x'" + " AND age > 3 OR job = 'eng'" * times,
        "plus": Q + "age" + " + 1" * times + " > 3",
        "plus minus": Q + "age" + " + 1 - 1" * times + " > 3",
        "concatenation": Q + "job" + " || 'x'" * times + " = 'y'",
        "powers": Q + "age" + " ** 1" * times + " > 3",
        "comparisons": Q + "age" + " = 3" * times,
        "BETWEEN": Q + "age BETWEEN " * times + "1 AND 2",
        "LIKE": Q + "job" + " LIKE 'a'" * times,
        "COLLATE": Q + "job" + " COLLATE NOCASE" * times + " = 'y'",
        "AT TIME ZONE": "SELECT seen" + " AT TIME ZONE 'UTC'" * times + " FROM patients",
        "joins": "SELECT COUNT(*) FROM patients" + " JOIN jobs USING (job)" * times,
        "nested joins": "SELECT COUNT(*) FROM "
        + nested("(", "patients", " JOIN jobs USING (job))", times),
        "UNION": " UNION ALL ".join(["SELECT COUNT(*) FROM patients"] * times),
        "UNION of estimates": " UNION ALL ".join([FLU] * times),
        "INTERSECT": " INTERSECT ".join(["SELECT 1"] * times),
        "EXISTS": Q + nested("EXISTS (SELECT 1 FROM jobs WHERE ", "TRUE", ")", times),
        "INTERVAL": "SELECT " + "INTERVAL " * times + "'1' DAY",
        "DISTINCT": "SELECT " + "DISTINCT " * times + "job FROM patients",
        "EXPLAIN": "EXPLAIN " * times + FLU,
        "comments": "/*" * times + FLU,
        "open": "(" * times,
        "closed": ")" * times,
        "open cases": "SELECT " + "CASE WHEN " * times,
        "WITHIN": Q + "age IN (" * times,
        "->": "SELECT '{}'::JSON" + "->'a'" * times,
        "filters": "SELECT "
        + nested("SUM(", "cost", ") FILTER (WHERE age > 3)", times)
        + " FROM patients",
        "VALUES": nested("SELECT * FROM (", "VALUES (1)", ") AS v", times),
        "QUALIFY": "SELECT job FROM patients" + " QUALIFY TRUE" * times,
    }


DEEPER = ("parentheses", "CASE", "sub-selects", "brackets", "AND", "->", "joins", "UNION", "EXISTS")


def deep() -> dict[str, str]:
    """Nested or chained a thousand times, and some ten thousand times."""
    thousand = {f"{name} x 1,000": sql for name, sql in _deep(1_000).items()}
    more = _deep(10_000)
    return thousand | {f"{name} x 10,000": more[name] for name in DEEPER}


def long() -> dict[str, str]:
    """Wide rather than deep."""
    bomb = "(a*)*" * 20 + "b"
    return {
        "IN of 100,000 public": Q + f"disease = 'flu' AND cost IN ({many(str, 100_000, ', ')})",
        "IN of 100,000 sensitive": Q + f"age IN ({many(str, 100_000, ', ')})",
        "IN of 100,000 words": Q + "job IN (" + many(lambda i: f"'w{i}'", 100_000, ", ") + ")",
        "10 MB of spaces": FLU + " " * 10_000_000,
        "10 MB of comment": FLU + " /*" + "x" * 10_000_000 + "*/",
        "10 MB of text": Q + "disease = '" + "x" * 10_000_000 + "'",
        "10 MB of a name": f'SELECT "{"x" * 10_000_000}" FROM patients',
        "10 MB of numbers": "SELECT " + "1, " * 3_300_000 + "1",
        "10 MB of semicolons": ";" * 10_000_000,
        "10 MB of quotes": "'" * 9_999_999,
        "10 MB of conditions": Q + "age > 3 OR " * 900_000 + "TRUE",
        "100,000 statements": "SELECT 1;" * 100_000,
        "columns": "SELECT " + many(lambda i: f"{i} AS c{i}", 20_000, ", ") + " FROM patients",
        "estimates": "SELECT "
        + many(lambda i: f"AVG(age) AS c{i}", 5_000, ", ")
        + " FROM patients",
        "same filters": "SELECT "
        + many(lambda i: "COUNT(*) FILTER (WHERE age > 3)", 10_000, ", ")
        + " FROM patients",
        "filters": "SELECT "
        + many(lambda i: f"COUNT(*) FILTER (WHERE age > {i})", 10_000, ", ")
        + " FROM patients",
        "public filters": "SELECT "
        + many(lambda i: f"COUNT(*) FILTER (WHERE cost > {i})", 10_000, ", ")
        + " FROM patients",
        "common tables": "WITH "
        + many(lambda i: f"c{i} AS (SELECT {i} AS n)", 3_000, ", ")
        + " SELECT * FROM c0",
        "chained common tables": "WITH c0 AS (SELECT COUNT(*) AS n FROM patients), "
        + many(lambda i: f"c{i + 1} AS (SELECT * FROM c{i})", 500, ", ")
        + " SELECT * FROM c500",
        "doubling common tables": "WITH c0 AS (SELECT COUNT(*) AS n FROM patients), "
        + many(lambda i: f"c{i + 1} AS (SELECT a.n FROM c{i} a, c{i} b)", 60, ", ")
        + " SELECT * FROM c60",
        "CASE of 10,000": "SELECT AVG(CASE age "
        + many(lambda i: f"WHEN {i} THEN {i}", 10_000, " ")
        + " END) FROM patients",
        "CASE over seconds": "SELECT AVG(CASE "
        + many(lambda i: f"WHEN second(seen) * {i} = age THEN {i}", 300, " ")
        + " END) FROM patients",
        "deep CASE over seconds": "SELECT AVG("
        + nested("CASE WHEN second(seen) % 7 = 1 THEN ", "1", " ELSE minute(seen) END", 80)
        + ") FROM patients",
        "GROUP BY 3,000": "SELECT COUNT(*) FROM patients GROUP BY "
        + many(lambda i: f"cost + {i}", 3_000, ", "),
        "ORDER BY 3,000": "SELECT job, COUNT(*) FROM patients GROUP BY job ORDER BY "
        + many(lambda i: "job", 3_000, ", "),
        "windows": "SELECT job, "
        + many(lambda i: f"SUM(COUNT(*)) OVER (ORDER BY job ROWS {i} PRECEDING)", 2_000, ", ")
        + " FROM patients GROUP BY job",
        "regex bomb": Q + f"regexp_matches(repeat('a', 10000), '{bomb}')",
        "regex of repeats": Q + "regexp_matches(job, '((a{1,100}){1,100}){1,100}')",
        "regex over seconds": Q + f"regexp_matches(seen::VARCHAR, '{bomb}')",
        "LIKE bomb": Q + "job LIKE '" + "%a" * 20_000 + "'",
        "LIKE over a long text": Q + "repeat('ab', 100000) LIKE '" + "%b%a" * 2_000 + "c'",
        "LIKE over seconds": Q + "seen::VARCHAR LIKE '" + "%" * 1_000_000 + "x'",
        "SIMILAR TO": Q + f"job SIMILAR TO '{bomb}'",
        "levenshtein": Q + "levenshtein(repeat('a', 100000), repeat('b', 100000)) > 3",
        "levenshtein in HAVING": "SELECT COUNT(*) FROM patients "
        "HAVING levenshtein(repeat('a', 200000), repeat('b', 200000)) > 3",
        "printf": "SELECT printf('%2000000000d', 1)",
        "format": "SELECT format('{:2000000000d}', 1)",
        "cross join": "SELECT COUNT(*) FROM patients a, patients b, patients c",
        "cross join of public": "SELECT COUNT(*) FROM big a, big b, big c WHERE a.n + b.n = c.n",
        "cross join of public, rows": "SELECT a.n FROM big a, big b, big c",
        "cross join in a condition": Q
        + "cost IN (SELECT a.n + b.n + c.n FROM big a, big b, big c)",
        "recursion": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
        "SELECT COUNT(*) FROM r",
        "recursion in a condition": "WITH RECURSIVE r(n) AS "
        "(SELECT 1 UNION ALL SELECT n + 1 FROM r) " + Q + "cost IN (SELECT n FROM r)",
        "recursive doubling": "WITH RECURSIVE r(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM r) "
        "SELECT MAX(length(s)) FROM r",
        "range": "SELECT COUNT(*) FROM range(1000000000000)",
        "generate_series": "SELECT COUNT(*) FROM generate_series(1, 1000000000000)",
        "range as a list": "SELECT len(range(1000000000000))",
        "sums of ranges": "SELECT list_sum(range(100000000)) FROM big",
        "unnest": "SELECT unnest(range(1000000000))",
        "repeat": "SELECT repeat('x', 1000000000)",
        "repeats": "SELECT repeat(repeat('x', 100000), 100000)",
        "repeat beside the table": Q + "length(repeat(job, 1000000000)) > 3",
        "repeat a row": "SELECT repeat('x', 1000000) FROM big",
        "repeat over seconds": Q + "length(repeat(seen::VARCHAR, 1000000)) > 3",
        "lpad": "SELECT MAX(lpad(job, 2000000000, 'x')) FROM patients",
        "string_agg": "SELECT string_agg(repeat(a.n::VARCHAR, 1000), ',') FROM big a, big b",
        "lists of everything": "SELECT list(a.n) FROM big a, big b, big c",
        "window frames": "SELECT SUM(a.n) OVER (ORDER BY a.n + b.n ROWS BETWEEN 1000000 PRECEDING "
        "AND 1000000 FOLLOWING) FROM big a, big b",
        "median frames": "SELECT MEDIAN(a.n) OVER (ORDER BY a.n * b.n ROWS BETWEEN 100000 "
        "PRECEDING AND CURRENT ROW) FROM big a, big b",
        "1e400": Q + "age > 1e400",
        "1e400 in SUM": "SELECT SUM(age * 1e400) FROM patients",
        "100,000 digits": Q + f"age > {'9' * 100_000}",
        "100,000 decimals": Q + f"age > 0.{'9' * 100_000}",
        "huge exponent": Q + f"age > 1e{'9' * 1_000}",
        "hexadecimal": Q + f"age > 0x{'F' * 100_000}",
        "10^60": "SELECT SUM(cost * 1" + "0" * 60 + ") FROM patients",
        "powers of powers": "SELECT 10::DOUBLE ^ 10 ^ 10 ^ 10 ^ 10",
        "factorial": "SELECT 100000! FROM patients",
        "LIMIT": f"SELECT job, COUNT(*) FROM patients GROUP BY job LIMIT {'9' * 60}",
        "CUBE": "SELECT COUNT(*) FROM patients GROUP BY CUBE ("
        + many(lambda i: f"cost % {i + 2}", 30, ", ")
        + ")",
        "CUBE of 10": "SELECT COUNT(*) FROM patients GROUP BY CUBE ("
        + many(lambda i: f"cost % {i + 2}", 10, ", ")
        + ")",
        "CUBE of estimates": "SELECT AVG(age) FROM patients GROUP BY CUBE ("
        + many(lambda i: f"cost % {i + 2}", 10, ", ")
        + ")",
        "ROLLUP": "SELECT AVG(age) FROM patients GROUP BY ROLLUP ("
        + many(lambda i: f"cost + {i}", 200, ", ")
        + ")",
        "grouping sets": "SELECT COUNT(*) FROM patients GROUP BY GROUPING SETS ("
        + many(lambda i: f"(cost + {i})", 3_000, ", ")
        + ")",
        "GROUP BY a million": "SELECT second(seen), minute(seen), hour(seen), age, COUNT(*) "
        "FROM patients GROUP BY ALL",
        "GROUP BY seconds": "SELECT seen, COUNT(*) FROM patients GROUP BY seen",
        "GROUP BY ROLLUP of seconds": "SELECT seen, age, disease, COUNT(*) FROM patients "
        "GROUP BY ROLLUP (seen, age, disease)",
        "CUBE of seconds": "SELECT seen, age, disease, COUNT(*) FROM patients "
        "GROUP BY CUBE (seen, age, disease, job, gender, favourite, cost)",
        "DISTINCT seconds": "SELECT COUNT(DISTINCT seen) FROM patients",
        "COUNT DISTINCT of pairs": "SELECT COUNT(DISTINCT (seen, age)) FROM patients",
        "median of seconds": "SELECT MEDIAN(seen) FROM patients GROUP BY cost",
        "quantiles": "SELECT quantile_cont(age, ["
        + many(lambda i: f"{i / 20_000}", 20_000, ", ")
        + "]) FROM patients",
        "many states": Q
        + " AND ".join(f"(age % {i + 2} = 1 OR disease = 'flu')" for i in range(60)),
        "iterative": "SELECT WITH RECONSTRUCTION OPTIONS (estimator = 'iterative') cost, age, "
        "disease, COUNT(*) FROM patients GROUP BY cost, age, disease",
        "options": "SELECT WITH RECONSTRUCTION OPTIONS ("
        + many(lambda i: f"o{i} = 1", 50_000, ", ")
        + ") 1",
        "many options": "SELECT WITH RECONSTRUCTION OPTIONS (estimator = 'auto') " * 5_000 + "1",
        "SET": "SET privsql.estimator = " + "a" * 1_000_000,
        "SET a huge number": "SET privsql.confidence_level = " + "9" * 100_000,
        "SHOW": "SHOW " + "a." * 500_000 + "b",
        "PIVOT": "PIVOT patients ON "
        + many(lambda i: f"cost + {i}", 500, ", ")
        + " USING COUNT(*)",
        "placeholders": Q + "age IN (" + "?, " * 100_000 + "?)",
    }


def stubborn() -> dict[str, str]:
    """Values that DuckDB works at for seconds without a look at the time."""
    return {
        "levenshtein": Q + f"levenshtein('{'a' * 25_000}', job || '{'b' * 25_000}') > 3",
        "levenshtein in HAVING": "SELECT MAX(job) FROM patients HAVING "
        f"levenshtein(MAX(job) || '{'a' * 40_000}', '{'b' * 40_000}') > 3",
        "doubling texts": nested(
            "SELECT s || s AS s FROM (", "SELECT MAX(job) AS s FROM jobs", ")", 31
        ),
        "replaced texts": "SELECT length("
        + nested("replace(", "MAX(job)", f", 'e', '{'e' * 900}')", 3)
        + ") FROM jobs",
    }


def all_of_them() -> dict[str, str]:
    """Every one by its name."""
    return deep() | long() | stubborn()

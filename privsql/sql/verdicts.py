"""SQL constructs and their verdicts: queries over rows.

A line says ``construct -> verdict code: remark``, the indented ones below it are the example;
``constructs`` reads it, with what stands in ``verdicts_around``.
"""

from __future__ import annotations

# What is added up, under which conditions, in which groups, and what is done with it.
VALUES = """
## Aggregates

COUNT(*) under a sensitive condition -> answered
    SELECT COUNT(*) FROM patients WHERE disease = 'flu'
COUNT(*) of public rows -> exact
    SELECT COUNT(*) FROM patients WHERE job = 'eng'
COUNT of a sensitive column -> answered: rows where it is not NULL
    SELECT COUNT(disease) FROM patients
FILTER -> answered
    SELECT COUNT(*) FILTER (WHERE disease = 'flu') FROM patients
COUNT_IF -> answered
    SELECT COUNT_IF(disease = 'flu') FROM patients
SUM of a public column -> answered
    SELECT SUM(cost) FROM patients WHERE disease = 'flu'
SUM of a sensitive column -> answered
    SELECT SUM(age) FROM patients WHERE age > 30
SUM of CASE over both -> answered
    SELECT SUM(CASE WHEN disease = 'flu' THEN cost ELSE 0 END) FROM patients
SUM over nothing -> answered: NULL, as in SQL
    SELECT SUM(cost) FROM patients WHERE disease = 'flu' AND job = 'nobody'
AVG of a sensitive column -> answered
    SELECT AVG(age) FROM patients
AVG of a public column under a sensitive condition -> answered
    SELECT AVG(cost) FROM patients WHERE disease = 'flu'
VAR_SAMP, VAR_POP, STDDEV -> answered: the square of the mean is debiased
    SELECT VAR_SAMP(age), STDDEV_POP(age) FROM patients
COVAR, CORR -> answered
    SELECT COVAR_POP(age, cost), CORR(age, cost) FROM patients
MEDIAN, QUANTILE_* of a sensitive column -> answered: an interval, no standard error
    SELECT MEDIAN(age), QUANTILE_DISC(age, 0.9) FROM patients
MEDIAN of text or booleans -> answered: one of the values, the lower of two, as in DuckDB
    SELECT MEDIAN(disease), MEDIAN(age > 50) FROM patients
MEDIAN, QUANTILE_CONT of intervals and times of day -> refused unsupported: QUANTILE_DISC takes one
    SELECT MEDIAN(to_days(age)) FROM patients
PERCENTILE_CONT ... WITHIN GROUP -> answered
    SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY age) FROM patients
MODE of a sensitive column -> no-bars
    SELECT MODE(disease) FROM patients
any aggregate of public columns alone -> exact
    SELECT MEDIAN(cost), COUNT(DISTINCT job), LIST(DISTINCT job) FROM patients
ORDER BY within a sum -> answered: the order changes no sum; error zero
    SELECT SUM(cost ORDER BY age) FROM patients
MIN, MAX of a sensitive column, whole table -> domain: for filter menus
    SELECT MIN(disease), MAX(age) FROM patients
DISTINCT values of a sensitive column -> domain: for filter menus
    SELECT DISTINCT disease FROM patients
MIN, MAX of a sensitive column under a condition -> refused unsupported
    SELECT MIN(disease) FROM patients WHERE job = 'eng'
MIN, MAX of a sensitive column in groups -> refused unsupported
    SELECT job, MAX(age) FROM patients GROUP BY job
MIN, MAX with a number of values -> refused unsupported
    SELECT MAX(age, 3) FROM patients
MIN, MAX under a sensitive condition -> refused unsupported
    SELECT MAX(cost) FROM patients WHERE disease = 'flu'
MIN, MAX of both kinds of columns -> refused unsupported
    SELECT MAX(age + cost) FROM patients
COUNT(DISTINCT) of a sensitive column -> refused unsupported
    SELECT COUNT(DISTINCT disease) FROM patients
COUNT(DISTINCT) under a sensitive condition -> refused unsupported
    SELECT COUNT(DISTINCT job) FROM patients WHERE disease = 'flu'
SUM(DISTINCT) under a sensitive condition -> refused unsupported
    SELECT SUM(DISTINCT cost) FROM patients WHERE disease = 'flu'
LIST, ARRAY_AGG of a sensitive column -> refused unsupported
    SELECT LIST(disease) FROM patients
LIST ordered by a sensitive column -> refused unsupported
    SELECT LIST(job ORDER BY age) FROM patients
STRING_AGG under a sensitive condition -> refused unsupported
    SELECT STRING_AGG(job, ',') FROM patients WHERE disease = 'flu'
FIRST, LAST, ANY_VALUE of a sensitive column -> refused unsupported
    SELECT ANY_VALUE(disease) FROM patients
ARG_MAX, MAX_BY by a sensitive column -> refused unsupported
    SELECT ARG_MAX(job, age) FROM patients
HISTOGRAM, ENTROPY of a sensitive column -> refused unsupported
    SELECT HISTOGRAM(disease) FROM patients
APPROX_COUNT_DISTINCT, APPROX_QUANTILE -> refused unsupported
    SELECT APPROX_COUNT_DISTINCT(disease) FROM patients
BOOL_AND, BOOL_OR, BIT_* -> refused unsupported
    SELECT BOOL_OR(disease = 'flu') FROM patients
PRODUCT, REGR_*, SKEWNESS, KURTOSIS, ... -> refused unsupported
    SELECT REGR_SLOPE(age, cost) FROM patients
MEDIAN, MODE of a public column under a sensitive condition -> refused unsupported
    SELECT MEDIAN(cost) FROM patients WHERE disease = 'flu'
several quantiles in one call -> refused unsupported
    SELECT QUANTILE_CONT(age, [0.1, 0.9]) FROM patients
COUNT(DISTINCT) of several columns -> refused unsupported
    SELECT COUNT(DISTINCT (disease, age)) FROM patients

## Conditions

comparison, BETWEEN, IN -> answered
    SELECT COUNT(*) FROM patients WHERE age BETWEEN 30 AND 40 AND disease IN ('flu', 'hiv')
LIKE, ILIKE, GLOB, SIMILAR TO -> answered
    SELECT COUNT(*) FROM patients WHERE disease LIKE 'f%' OR disease SIMILAR TO 'h..'
regular expressions -> answered
    SELECT COUNT(*) FROM patients WHERE regexp_matches(disease, 'l')
OR, NOT over any of them -> answered
    SELECT COUNT(*) FROM patients WHERE NOT (disease = 'flu' OR age > 60)
OR of public and sensitive -> answered
    SELECT COUNT(*) FROM patients WHERE disease = 'flu' OR job = 'eng'
IS NULL, IS DISTINCT FROM, IS TRUE -> answered
    SELECT COUNT(*) FROM patients WHERE disease IS NULL OR disease IS DISTINCT FROM 'flu'
CASE -> answered
    SELECT COUNT(*) FROM patients WHERE CASE WHEN disease = 'flu' THEN cost > 50 ELSE age >
    60 END
functions and arithmetic -> answered
    SELECT COUNT(*) FROM patients WHERE upper(disease) = 'FLU' AND age % 10 = 3
date functions of a grid of timestamps -> answered
    SELECT COUNT(*) FROM patients WHERE seen < TIMESTAMP '2024-07-01'
two sensitive columns compared -> answered
    SELECT COUNT(*) FROM patients WHERE age > 10 * length(disease)
sensitive compared with public -> answered
    SELECT COUNT(*) FROM patients WHERE disease = favourite
tuples -> answered
    SELECT COUNT(*) FROM patients WHERE (job, disease) IN (('eng', 'flu'))
IN over a public table -> answered
    SELECT COUNT(*) FROM patients WHERE disease IN (SELECT disease FROM illness WHERE class
    = 'virus')
a condition that no value satisfies -> answered: 0 without error
    SELECT COUNT(*) FROM patients WHERE disease = 'measles'
method calls -> refused unsupported: write upper(disease)
    SELECT COUNT(*) FROM patients WHERE disease.upper() = 'FLU'
a sensitive column compared with an estimate -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE age > (SELECT AVG(age) FROM patients)
a public column compared with an answer -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE cost > (SELECT AVG(cost) FROM patients)
EXISTS, IN over public tables alone -> answered
    SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND EXISTS (SELECT * FROM jobs WHERE
    pay > 2)
EXISTS over a public table, correlated -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE EXISTS (SELECT 1 FROM illness WHERE illness.disease
    = patients.disease)
correlated by a name that is used inside too -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE EXISTS (SELECT 1 FROM visits WHERE age > 30 AND
    EXISTS (SELECT 1 AS age))
published rows deep in a sub-query -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE job IN (SELECT job FROM jobs LIMIT (SELECT COUNT(*)
    FROM patients WHERE patients.disease = 'flu'))
published rows in the ON of a sub-query -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE job IN (SELECT jobs.job FROM jobs JOIN visits ON
    (SELECT COUNT(*) FROM patients WHERE patients.disease = 'flu') > 9)
a table function in a sub-query -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE job IN (SELECT q.job FROM query_table('patients') q)
query() in a sub-query -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE 9 < (SELECT q.n FROM query('SELECT COUNT(*) AS n
    FROM patients') q)
COLUMNS in a condition -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE COLUMNS('disease') = 'flu'
COLUMNS unpacked -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE 'flu' IN (*COLUMNS('disease|job'))
columns by position -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE #5 = 'flu'
columns by position in an aggregate -> refused unsupported
    SELECT SUM(#6) FROM patients
volatile functions -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE random() < 0.5
clock and settings over a sensitive column -> refused unsupported
    SELECT COUNT(*) FROM patients WHERE age > extract('second' FROM now())
more states than 65,536 -> refused too-large: the columns are named
    SELECT age, disease, seen, COUNT(*) FROM patients GROUP BY ALL

## Groups and what follows them

GROUP BY public -> answered
    SELECT job, COUNT(*) FROM patients WHERE disease = 'flu' GROUP BY job
GROUP BY sensitive -> answered: a group for every value of the domain
    SELECT disease, COUNT(*) FROM patients GROUP BY disease
GROUP BY both -> answered
    SELECT job, disease, COUNT(*) FROM patients GROUP BY job, disease
GROUP BY expressions -> answered
    SELECT age // 10 AS decade, COUNT(*) FROM patients GROUP BY decade
GROUP BY ALL, ordinals -> answered
    SELECT disease, COUNT(*) FROM patients GROUP BY ALL ORDER BY 2
ROLLUP, CUBE, GROUPING SETS -> answered
    SELECT job, disease, COUNT(*) FROM patients GROUP BY CUBE (job, disease)
HAVING on an estimate -> answered: which groups pass is itself uncertain
    SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job HAVING n > 10
HAVING on a name that is an alias and a column -> answered: the alias, unless the column is a key
    SELECT job, AVG(age) AS age FROM patients GROUP BY job HAVING age > 40
HAVING on a column under GROUP BY ALL -> refused unsupported: it would become a key
    SELECT age % 2 AS odd, COUNT(*) FROM patients GROUP BY ALL HAVING odd = 1
HAVING without GROUP BY -> answered
    SELECT COUNT(*) FROM patients WHERE disease = 'flu' HAVING COUNT(*) > 1
ORDER BY, LIMIT on an estimate -> answered: a notice: the largest is partly large by chance
    SELECT disease, COUNT(*) AS n FROM patients GROUP BY disease ORDER BY n DESC LIMIT 2
window functions over the result: totals and shares -> answered
    SELECT job, COUNT(*) / SUM(COUNT(*)) OVER () FROM patients WHERE disease = 'flu' GROUP
    BY job
running totals, moving averages, LAG, LEAD -> answered: over groups of public columns
    SELECT job, SUM(n) OVER (ORDER BY job), AVG(n) OVER (ORDER BY job ROWS 1 PRECEDING),
    n - LAG(n) OVER (ORDER BY job), n / LAG(n) OVER (ORDER BY job)
    FROM (SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job)
the same over groups of a sensitive column -> no-bars
    SELECT disease, SUM(n) OVER (ORDER BY disease)
    FROM (SELECT disease, COUNT(*) AS n FROM patients GROUP BY disease)
shares over a sub-select -> answered
    SELECT disease, n / SUM(n) OVER ()
    FROM (SELECT disease, COUNT(*) AS n FROM patients GROUP BY disease)
other window functions -> no-bars
    SELECT job, row_number() OVER (ORDER BY COUNT(*)) FROM patients WHERE disease = 'flu'
    GROUP BY job
QUALIFY -> answered
    SELECT disease, COUNT(*) AS n FROM patients GROUP BY disease QUALIFY row_number() OVER
    (ORDER BY n DESC) = 1
DISTINCT over estimates -> no-bars
    SELECT DISTINCT COUNT(*) FROM patients WHERE disease = 'flu' GROUP BY job
groups alone, public and sensitive -> domain
    SELECT job, disease FROM patients GROUP BY job, disease
aliases in later columns -> answered
    SELECT COUNT(*) AS n, n / 2 AS half FROM patients WHERE disease = 'flu'
which groups exist under a sensitive condition -> refused unsupported
    SELECT job FROM patients WHERE disease = 'flu' GROUP BY job
DISTINCT under a sensitive condition -> refused unsupported
    SELECT DISTINCT job FROM patients WHERE disease = 'flu'
DISTINCT ON -> refused unsupported
    SELECT DISTINCT ON (job) job, disease FROM patients
window functions over published rows -> refused unsupported
    SELECT SUM(cost) OVER () FROM patients
DISTINCT of a window function over published rows -> refused unsupported
    SELECT DISTINCT COUNT(*) OVER (PARTITION BY disease) FROM patients
QUALIFY over published rows -> refused unsupported
    SELECT disease FROM patients QUALIFY row_number() OVER (ORDER BY age) = 1

## Arithmetic over estimates

+ - * / with constants -> answered
    SELECT COUNT(*) * 2 + 1 FROM patients WHERE disease = 'flu'
shares -> answered
    SELECT COUNT(*) FILTER (WHERE disease = 'flu') * 1.0 / COUNT(*) FROM patients
differences of rates -> answered
    SELECT AVG((disease = 'flu')::INT) FILTER (WHERE job = 'eng') - AVG((disease =
    'flu')::INT) FILTER (WHERE job = 'law') FROM patients
smooth functions -> answered
    SELECT sqrt(COUNT(*)), ln(COUNT(*)) FROM patients WHERE disease = 'flu'
share of a sub-query's exact count -> answered
    SELECT COUNT(*) / (SELECT COUNT(*) FROM patients) FROM patients WHERE disease = 'flu'
share of a sub-query's estimate -> no-bars
    SELECT COUNT(*) / (SELECT COUNT(*) FROM patients WHERE age > 30) FROM patients WHERE
    disease = 'flu'
// of an estimate -> no-bars: division of DOUBLEs: DuckDB does not round it
    SELECT COUNT(*) // 2 FROM patients WHERE disease = 'flu'
% of an estimate -> no-bars: remainder of DOUBLEs
    SELECT COUNT(*) % 10 FROM patients WHERE disease = 'flu'
cast to an integer -> no-bars: rounded to the nearest
    SELECT COUNT(*)::BIGINT FROM patients WHERE disease = 'flu'
round -> answered: the ends are rounded as well
    SELECT round(COUNT(*)) FROM patients WHERE disease = 'flu'
floor, ceil, trunc -> no-bars
    SELECT floor(COUNT(*)) FROM patients WHERE disease = 'flu'
|| and text functions -> no-bars: the text of the DOUBLE
    SELECT COUNT(*) || ' people' FROM patients WHERE disease = 'flu'
comparisons, CASE -> no-bars
    SELECT CASE WHEN COUNT(*) > 10 THEN 'many' ELSE 'few' END FROM patients WHERE disease =
    'flu'
lists and structs of estimates -> no-bars
    SELECT {'n': COUNT(*)} AS s FROM patients WHERE disease = 'flu'
error bars in SQL -> answered
    SELECT COUNT(*) AS n, privsql_stderr(n), privsql_low(n), privsql_high(n) FROM patients
    WHERE disease = 'flu'
the published count -> answered: not reconstructed, and asked for by name only
    SELECT COUNT(*) AS n, privsql_observed(n) FROM patients WHERE disease = 'flu'
bit operators on an estimate -> refused programming: DuckDB has none for DOUBLE
    SELECT COUNT(*) & 1 FROM patients WHERE disease = 'flu'
"""

"""SQL constructs and their verdicts, continued: FROM, and other statements."""

from __future__ import annotations

AROUND = """
## FROM

an alias, quoted names, any case -> answered
    SELECT COUNT(*) FROM PATIENTS AS p WHERE p."Disease" = 'flu'
the schema's name -> answered
    SELECT COUNT(*) FROM main.patients WHERE disease = 'flu'
column aliases of the table -> answered
    SELECT COUNT(*) FROM patients AS p(a, b, c, d, e) WHERE e = 'flu'
FROM first -> answered
    FROM patients SELECT COUNT(*) WHERE disease = 'flu'
CTE of rows -> answered
    WITH sick AS (SELECT * FROM patients WHERE disease = 'flu') SELECT COUNT(*) FROM sick
CTE of rows with column names -> answered
    WITH sick(what) AS (SELECT disease FROM patients) SELECT COUNT(*) FROM sick WHERE what =
    'flu'
CTE with the table's own name -> refused unsupported: give it another name
    WITH patients AS (SELECT * FROM main.patients WHERE job = 'eng') SELECT COUNT(*) FROM
    patients WHERE disease = 'flu'
sub-select that filters or projects -> answered
    SELECT COUNT(*) FROM (SELECT upper(disease) AS d FROM patients WHERE cost > 20) AS s
    WHERE d = 'FLU'
query over an aggregated one -> answered
    SELECT n FROM (SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY
    job) AS s WHERE job = 'eng'
SUM over an aggregated one -> answered
    SELECT SUM(n) FROM (SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP
    BY job) AS s
MAX over an aggregated one -> no-bars
    SELECT MAX(n) FROM (SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP
    BY job) AS s
a field of a struct of estimates -> no-bars
    SELECT s.n FROM (SELECT {'n': COUNT(*)} AS s FROM patients WHERE disease = 'flu') AS x
two answers joined -> answered
    SELECT a.n / b.n FROM (SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu') AS a,
    (SELECT COUNT(*) AS n FROM patients) AS b
two estimates joined -> no-bars
    SELECT a.n - b.n FROM (SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu') AS a,
    (SELECT COUNT(*) AS n FROM patients WHERE age > 30) AS b
UNION ALL of answers -> answered
    SELECT COUNT(*) FROM patients WHERE disease = 'flu' UNION ALL SELECT COUNT(*) FROM
    patients
UNION, EXCEPT, INTERSECT of answers -> no-bars
    SELECT COUNT(*) FROM patients WHERE disease = 'flu' UNION SELECT COUNT(*) FROM patients
join with a public table on a public key -> answered
    SELECT pay, COUNT(*) FROM patients JOIN jobs USING (job) WHERE disease = 'flu' GROUP BY
    pay
LEFT JOIN with a public table -> answered
    SELECT COUNT(*) FROM patients LEFT JOIN jobs ON patients.job = jobs.job WHERE disease =
    'flu'
join of a sensitive column with its dimension table -> answered: a function of its value
    SELECT class, COUNT(*) FROM patients JOIN illness USING (disease) GROUP BY class
the public table first -> answered
    SELECT COUNT(*) FROM illness JOIN patients USING (disease) WHERE class = 'virus'
a public table alone -> exact
    SELECT job, pay FROM jobs
no table -> exact
    SELECT 1 + 1
parameters -> answered
    SELECT COUNT(*) FROM patients WHERE disease = ? AND age > $2
rows of sensitive columns -> refused unsupported
    SELECT disease FROM patients
all rows -> refused unsupported
    SELECT * FROM patients LIMIT 5
rows of public columns -> refused unsupported
    SELECT job FROM patients
COLUMNS(*) -> refused unsupported
    SELECT MIN(COLUMNS(*)) FROM patients
COLUMNS in a sub-select -> refused unsupported
    SELECT COUNT(*) FROM (SELECT COLUMNS('dis.*') AS x FROM patients) AS s WHERE x = 'flu'
the row as a struct -> refused unknown-name
    SELECT COUNT(patients) FROM patients
the row's number -> refused unknown-name
    SELECT MAX(rowid) FROM patients
rows LIMITed or ordered first -> refused unsupported
    SELECT COUNT(*) FROM (SELECT * FROM patients ORDER BY age LIMIT 10) AS s
UNION of rows -> refused unsupported
    SELECT COUNT(*) FROM (SELECT disease FROM patients UNION ALL SELECT disease FROM
    patients) AS s
UNNEST of published rows -> refused unsupported: it multiplies rows
    SELECT COUNT(*) FROM (SELECT unnest([1, 2]) AS x, disease FROM patients) AS s WHERE
    disease = 'flu'
two published tables joined -> refused unsupported
    SELECT COUNT(*) FROM patients AS a JOIN patients AS b ON a.job = b.job
rows joined with an answer -> refused unsupported
    SELECT COUNT(*) FROM patients AS a JOIN (SELECT job, COUNT(*) AS n FROM patients GROUP
    BY job) AS b ON a.job = b.job
a join that multiplies rows -> refused fan-out
    SELECT COUNT(*) FROM patients JOIN visits USING (job) WHERE disease = 'flu'
a join without a condition -> refused unsupported
    SELECT COUNT(*) FROM patients, jobs
a join on something other than equality -> refused unsupported
    SELECT COUNT(*) FROM patients JOIN jobs ON patients.cost > jobs.pay
a join with a condition on a sensitive column -> refused unsupported
    SELECT COUNT(*) FROM patients JOIN jobs ON patients.job = jobs.job AND disease = 'flu'
a join on a public and a sensitive column -> refused unsupported
    SELECT COUNT(*) FROM patients JOIN illness ON patients.disease = illness.disease AND
    patients.job = illness.class
RIGHT, FULL, CROSS, SEMI, ANTI joins -> refused unsupported
    SELECT COUNT(*) FROM patients SEMI JOIN illness ON patients.disease = illness.disease
NATURAL, ASOF, POSITIONAL joins -> refused unsupported
    SELECT COUNT(*) FROM patients POSITIONAL JOIN jobs
a CTE joined with published rows -> refused unsupported
    WITH q AS (SELECT 'eng' AS job) SELECT COUNT(*) FROM patients JOIN q USING (job)
a CTE in a condition's sub-query -> refused unsupported
    WITH illness AS (SELECT 'flu' AS disease) SELECT COUNT(*) FROM patients WHERE disease IN
    (SELECT disease FROM illness)
LATERAL -> refused unsupported
    SELECT COUNT(*) FROM patients, LATERAL (SELECT patients.disease AS x) AS l WHERE l.x =
    'flu'
a sub-query that depends on rows around it -> refused unknown-name
    SELECT class, (SELECT COUNT(*) FROM patients WHERE patients.disease = illness.disease)
    FROM illness
recursive CTE -> refused unsupported
    WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n
    FROM r
samples -> refused unsupported
    SELECT COUNT(*) FROM patients USING SAMPLE 10%
TABLESAMPLE -> refused unsupported
    SELECT COUNT(*) FROM patients TABLESAMPLE 10% WHERE disease = 'flu'
PIVOT -> refused unsupported
    SELECT * FROM patients PIVOT (COUNT(*) FOR disease IN ('flu', 'hiv'))
UNPIVOT -> refused unsupported
    UNPIVOT patients ON disease INTO NAME n VALUE v
table functions -> refused unsupported
    SELECT COUNT(*) FROM query_table('patients') WHERE disease = 'flu'
catalogs -> refused unsupported
    SELECT * FROM duckdb_tables()
the whole row of an answer -> refused unsupported
    SELECT x FROM (SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu') AS x
COLUMNS over an answer -> refused unsupported
    SELECT COLUMNS(*) FROM (SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu') AS x
columns of an answer by position -> refused unsupported
    SELECT #1 FROM (SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu') AS x

## Other statements

CREATE -> refused unsupported
    CREATE TABLE x AS SELECT * FROM patients
INSERT -> refused unsupported
    INSERT INTO patients SELECT * FROM patients
UPDATE -> refused unsupported
    UPDATE patients SET disease = 'flu'
DELETE -> refused unsupported
    DELETE FROM patients
DROP, ALTER, TRUNCATE -> refused unsupported
    DROP TABLE patients
COPY, EXPORT -> refused unsupported
    COPY patients TO 'patients.csv'
ATTACH, USE -> refused unsupported
    ATTACH 'other.duckdb'
PRAGMA, CALL -> refused unsupported
    PRAGMA table_info('patients')
PREPARE, EXECUTE -> refused unsupported
    PREPARE p AS SELECT 1
BEGIN, COMMIT, ROLLBACK -> refused unsupported
    BEGIN
INSTALL, LOAD -> refused unsupported
    INSTALL httpfs
SUMMARIZE, DESCRIBE -> refused unsupported
    SUMMARIZE patients
SET of anything that is not privsql's -> refused programming
    SET threads = 4
"""

-- What follows from the rows that are there.
INSERT INTO pgc.pg_namespace BY NAME
    SELECT *, 10 AS nspowner FROM (VALUES (11, 'pg_catalog'), (2200, 'public'),
        (13000, 'information_schema')) AS named(oid, nspname);
INSERT INTO pgi.schemata BY NAME
    SELECT nspname AS schema_name, 'privsql' AS schema_owner FROM pgc.pg_namespace;
INSERT INTO pgc.pg_tables BY NAME
    SELECT 'public' AS schemaname, relname AS tablename, 'privsql' AS tableowner,
        relhasindex AS hasindexes, relhasrules AS hasrules, relhastriggers AS hastriggers,
        relrowsecurity AS rowsecurity
    FROM pgc.pg_class WHERE relnamespace = 2200 ORDER BY relname;
INSERT INTO pgi.tables BY NAME
    SELECT 'public' AS table_schema, relname AS table_name, 'BASE TABLE' AS table_type,
        'NO' AS is_insertable_into, 'NO' AS is_typed
    FROM pgc.pg_class WHERE relnamespace = 2200 ORDER BY relname;
INSERT INTO pgi.columns BY NAME
    SELECT 'public' AS table_schema, relname AS table_name, attname AS column_name,
        attnum AS ordinal_position, 'YES' AS is_nullable,
        CASE typcategory WHEN 'A' THEN 'ARRAY' ELSE shown END AS data_type,
        pgc._pg_numeric_precision(atttypid, atttypmod) AS numeric_precision,
        CASE WHEN numeric_precision IS NOT NULL
            THEN CASE typname WHEN 'numeric' THEN 10 ELSE 2 END END AS numeric_precision_radix,
        pgc._pg_numeric_scale(atttypid, atttypmod) AS numeric_scale,
        pgc._pg_datetime_precision(atttypid, atttypmod) AS datetime_precision,
        CASE typname WHEN 'text' THEN 1 << 30 END AS character_octet_length,
        'pg_catalog' AS udt_schema, typname AS udt_name, attnum AS dtd_identifier,
        'NO' AS is_self_referencing, 'NO' AS is_identity, 'NO' AS identity_cycle,
        'NEVER' AS is_generated, 'NO' AS is_updatable
    FROM pgc.pg_attribute JOIN pgc.pg_class c ON c.oid = attrelid
        JOIN pgc.pg_type t ON t.oid = atttypid JOIN pgc._formats f ON f.oid = atttypid
    WHERE relnamespace = 2200 ORDER BY relname, attnum;
INSERT INTO pgi.character_sets BY NAME
    SELECT 'UTF8' AS character_set_name, 'UCS' AS character_repertoire, 'UTF8' AS form_of_use;
INSERT INTO pgi.table_privileges BY NAME
    SELECT 'privsql' AS grantor, 'PUBLIC' AS grantee, 'public' AS table_schema,
        relname AS table_name, 'SELECT' AS privilege_type, 'NO' AS is_grantable,
        'YES' AS with_hierarchy
    FROM pgc.pg_class WHERE relnamespace = 2200 ORDER BY relname;
INSERT INTO pgc.pg_stat_user_tables BY NAME
    SELECT oid AS relid, 'public' AS schemaname, relname, reltuples::BIGINT AS n_live_tup,
        0 AS n_dead_tup
    FROM pgc.pg_class WHERE relnamespace = 2200 ORDER BY relname;
INSERT INTO pgc.pg_stat_all_tables BY NAME SELECT * FROM pgc.pg_stat_user_tables;
INSERT INTO pgc.pg_statio_user_tables BY NAME
    SELECT relid, schemaname, relname FROM pgc.pg_stat_user_tables;
INSERT INTO pgc.pg_statio_all_tables BY NAME SELECT * FROM pgc.pg_statio_user_tables;
INSERT INTO pgc.pg_timezone_names BY NAME SELECT * FROM pgc.pg_timezone_names();

-- What the macros read.  An argument is put into a macro as it is written, so a column of these
-- must not be called like any that an argument can name.
CREATE VIEW pgc._z_keyword AS SELECT word AS z_word FROM pgc.keywords WHERE catcode <> 'U';
CREATE MACRO pgc.quote_ident(a) AS
    CASE WHEN regexp_full_match(a, '[a-z_][a-z0-9_$]*')
        AND NOT EXISTS (SELECT 1 FROM pgc._z_keyword WHERE z_word = a)
    THEN a ELSE '"' || replace(a, '"', '""') || '"' END;
CREATE VIEW pgc._z_setting AS
    SELECT lower(name) AS z_name, setting AS z_value FROM pgc.pg_settings;
CREATE VIEW pgc._z_role AS SELECT oid AS z_oid, rolname AS z_name FROM pgc.pg_roles;
CREATE VIEW pgc._z_namespace AS SELECT oid AS z_oid, nspname AS z_name FROM pgc.pg_namespace;
CREATE VIEW pgc._z_function AS SELECT oid AS z_oid, proname AS z_name FROM pgc.pg_proc;
CREATE VIEW pgc._z_type AS
    SELECT oid AS z_oid, shown AS z_shown, name AS z_name FROM pgc._formats;
CREATE VIEW pgc._z_types AS SELECT MAP(list(oid), list(shown)) AS z_by_oid FROM pgc._formats;
CREATE VIEW pgc._z_class AS
    SELECT c.oid AS z_oid, n.nspname <> 'information_schema' AS z_visible,
        c.relname AS z_name, n.nspname || '.' || c.relname AS z_full,
        CASE WHEN n.nspname IN ('public', 'pg_catalog') THEN '' ELSE n.nspname || '.' END
        || pgc.quote_ident(c.relname) AS z_shown
    FROM pgc.pg_class c JOIN pgc.pg_namespace n ON n.oid = c.relnamespace;
CREATE VIEW pgc._z_description AS
    SELECT d.objoid AS z_object, d.objsubid AS z_part, c.relname AS z_class, d.description AS z_text
    FROM pgc.pg_description d JOIN pgc.pg_class c ON c.oid = d.classoid;
CREATE VIEW pgc._z_proc AS
    SELECT p.oid AS z_oid, t.z_by_oid[p.prorettype] AS z_result,
        array_to_string(list_transform(p.proargtypes, lambda e: t.z_by_oid[e]), ', ') AS z_arguments
    FROM pgc.pg_proc p, pgc._z_types t;

-- PostgreSQL's system functions, each after those that it calls.  The variable pg says who asks.
CREATE MACRO pgc.version() AS 'PostgreSQL 15.0 (privsql)';
CREATE MACRO pgc.current_user() AS getvariable('pg').user;
CREATE MACRO pgc.session_user() AS getvariable('pg').user;
CREATE MACRO pgc.current_database() AS getvariable('pg').database;
CREATE MACRO pgc.current_catalog() AS getvariable('pg').database;
CREATE MACRO pgc.current_schema() AS 'public';
CREATE MACRO pgc.current_schemas(a) AS
    CASE WHEN a THEN ['pg_catalog', 'public'] ELSE ['public'] END;
CREATE MACRO pgc.pg_backend_pid() AS getvariable('pg').pid;

-- As the connection has it, or else as the server does.
CREATE MACRO pgc._setting(a) AS coalesce(getvariable('pg').settings[lower(a)],
    (SELECT z_value FROM pgc._z_setting WHERE z_name = lower(a)));
CREATE MACRO pgc.current_setting(a) AS pgc._setting(a), (a, b) AS pgc._setting(a);
CREATE MACRO pgc.set_config(a, b, c) AS b;

CREATE MACRO pgc.pg_get_userbyid(a) AS coalesce(
    (SELECT z_name FROM pgc._z_role WHERE z_oid = a), 'unknown (OID=' || a || ')');
-- Without its schema's name, which information_schema needs.
CREATE MACRO pgc.pg_table_is_visible(a) AS (SELECT z_visible FROM pgc._z_class WHERE z_oid = a);
CREATE MACRO pgc.pg_encoding_to_char(a) AS
    CASE a WHEN 6 THEN 'UTF8' WHEN 0 THEN 'SQL_ASCII' ELSE '' END;
CREATE MACRO pgc.pg_char_to_encoding(a) AS CASE upper(a) WHEN 'UTF8' THEN 6 ELSE -1 END;
CREATE MACRO pgc.format_type(a, b) AS CASE WHEN a IS NULL THEN NULL ELSE coalesce(
    (SELECT z_shown || CASE
        WHEN a = 1700 AND b > 4 THEN '(' || ((b - 4) >> 16) || ',' || ((b - 4) & 65535) || ')'
        WHEN a IN (1042, 1043) AND b > 4 THEN '(' || (b - 4) || ')' ELSE '' END
    FROM pgc._z_type WHERE z_oid = a), CASE WHEN a = 0 THEN '-' ELSE '???' END) END;
CREATE MACRO pgc.obj_description(a, b) AS (SELECT z_text FROM pgc._z_description
        WHERE z_object = a AND z_part = 0 AND z_class = b LIMIT 1),
    (a) AS (SELECT z_text FROM pgc._z_description WHERE z_object = a AND z_part = 0 LIMIT 1);
CREATE MACRO pgc.col_description(a, b) AS (SELECT z_text FROM pgc._z_description
    WHERE z_object = a AND z_part = b AND z_class = 'pg_class' LIMIT 1);
CREATE MACRO pgc.quote_literal(a) AS '''' || replace(a::VARCHAR, '''', '''''') || '''';
CREATE MACRO pgc.pg_size_pretty(a) AS
    CASE WHEN abs(a) < 10240 THEN a || ' bytes' ELSE (a // 1024) || ' kB' END;
-- In steps of 50 ms, between which a statement can be canceled; sleep_ms() itself cannot.
CREATE MACRO pgc.pg_sleep(a) AS (
    WITH RECURSIVE z_steps(z_i) AS (SELECT 0 UNION ALL SELECT z_i + 1 FROM z_steps
        WHERE z_i < (a) * 20 AND sleep_ms(50 + z_i * 0) IS NULL)
    SELECT left(count(*)::VARCHAR, 0) FROM z_steps);
CREATE MACRO pgc.pg_get_function_result(a) AS (SELECT z_result FROM pgc._z_proc WHERE z_oid = a);
CREATE MACRO pgc.pg_get_function_arguments(a) AS
    (SELECT z_arguments FROM pgc._z_proc WHERE z_oid = a);
CREATE MACRO pgc.pg_get_function_identity_arguments(a) AS pgc.pg_get_function_arguments(a);
CREATE MACRO pgc.array_upper(a, b) AS CASE WHEN len(a) > 0 THEN len(a)::INTEGER END;
CREATE MACRO pgc.array_lower(a, b) AS CASE WHEN len(a) > 0 THEN 1 END;
CREATE MACRO pgc.array_to_string(a, b) AS CASE WHEN a IS NULL THEN NULL ELSE
        coalesce(list_aggregate(list_filter(a::VARCHAR[], lambda e: e IS NOT NULL),
        'string_agg', b), '') END,
    (a, b, c) AS CASE WHEN a IS NULL THEN NULL ELSE
        coalesce(list_aggregate(list_transform(a::VARCHAR[], lambda e: coalesce(e, c)),
        'string_agg', b), '') END;
CREATE MACRO pgc._pg_expandarray(a) AS
    unnest([{'x': a[i], 'n': i::INTEGER} for i in range(1, len(a) + 1)]);
CREATE MACRO pgc._pg_truetypid(a, t) AS a.atttypid;
CREATE MACRO pgc._pg_truetypmod(a, t) AS a.atttypmod;
CREATE MACRO pgc._pg_char_max_length(a, b) AS CASE WHEN a IN (1042, 1043) AND b > 4 THEN b - 4 END;
CREATE MACRO pgc._pg_numeric_precision(a, b) AS
    CASE a WHEN 21 THEN 16 WHEN 23 THEN 32 WHEN 20 THEN 64 WHEN 700 THEN 24 WHEN 701 THEN 53
    WHEN 1700 THEN CASE WHEN b > 4 THEN (b - 4) >> 16 END END;
CREATE MACRO pgc._pg_numeric_scale(a, b) AS
    CASE WHEN a IN (20, 21, 23) THEN 0 WHEN a = 1700 AND b > 4 THEN (b - 4) & 65535 END;
CREATE MACRO pgc._pg_datetime_precision(a, b) AS
    CASE WHEN a = 1082 THEN 0 WHEN a IN (1083, 1114, 1184, 1186) THEN 6 END;

-- Objects by name.  A name in public or pg_catalog needs no schema.
CREATE MACRO pgc._plain(a) AS
    replace(regexp_replace(a, '^("?public"?|"?pg_catalog"?)\.', ''), '"', '');
CREATE MACRO pgc.regclass_name(a) AS CASE WHEN a IS NULL THEN NULL ELSE coalesce(
    (SELECT z_shown FROM pgc._z_class WHERE z_oid = TRY_CAST(a AS UINTEGER)),
    CASE WHEN TRY_CAST(a AS UINTEGER) = 0 THEN '-' ELSE a::VARCHAR END) END;
CREATE MACRO pgc.regclass_oid(a) AS coalesce(TRY_CAST(a AS UINTEGER),
    (SELECT min(z_oid) FROM pgc._z_class WHERE pgc._plain(a::VARCHAR) IN (z_name, z_full)));
CREATE MACRO pgc.regtype_name(a) AS CASE WHEN a IS NULL THEN NULL
    WHEN TRY_CAST(a AS UINTEGER) IS NULL THEN coalesce((SELECT min(z_shown) FROM pgc._z_type
        WHERE lower(pgc._plain(a::VARCHAR)) IN (z_shown, z_name)), a::VARCHAR) ELSE coalesce(
    (SELECT z_shown FROM pgc._z_type WHERE z_oid = TRY_CAST(a AS UINTEGER)),
    CASE WHEN TRY_CAST(a AS UINTEGER) = 0 THEN '-' ELSE a::VARCHAR END) END;
CREATE MACRO pgc.regtype_oid(a) AS coalesce(TRY_CAST(a AS UINTEGER),
    (SELECT min(z_oid) FROM pgc._z_type WHERE lower(pgc._plain(a::VARCHAR)) IN (z_shown, z_name)));
CREATE MACRO pgc.regnamespace_name(a) AS coalesce(
    (SELECT z_name FROM pgc._z_namespace WHERE z_oid = TRY_CAST(a AS UINTEGER)), a::VARCHAR);
CREATE MACRO pgc.regnamespace_oid(a) AS coalesce(TRY_CAST(a AS UINTEGER),
    (SELECT z_oid FROM pgc._z_namespace WHERE z_name = replace(a::VARCHAR, '"', '')));
CREATE MACRO pgc.regrole_name(a) AS coalesce(
    (SELECT z_name FROM pgc._z_role WHERE z_oid = TRY_CAST(a AS UINTEGER)), a::VARCHAR);
CREATE MACRO pgc.regrole_oid(a) AS coalesce(TRY_CAST(a AS UINTEGER),
    (SELECT min(z_oid) FROM pgc._z_role WHERE z_name = replace(a::VARCHAR, '"', '')));
CREATE MACRO pgc.regproc_name(a) AS CASE WHEN a IS NULL THEN NULL
    WHEN TRY_CAST(a AS UINTEGER) IS NULL THEN pgc._plain(a::VARCHAR) ELSE coalesce(
    (SELECT z_name FROM pgc._z_function WHERE z_oid = TRY_CAST(a AS UINTEGER)),
    CASE WHEN TRY_CAST(a AS UINTEGER) = 0 THEN '-' ELSE a::VARCHAR END) END;
CREATE MACRO pgc.regproc_oid(a) AS CASE WHEN a = '-' THEN 0 ELSE coalesce(TRY_CAST(a AS UINTEGER),
    (SELECT min(z_oid) FROM pgc._z_function WHERE z_name = split_part(pgc._plain(a::VARCHAR), '(', 1)))
    END;
CREATE MACRO pgc.regclass_names(a) AS list_transform(a, lambda e: e::VARCHAR);
CREATE MACRO pgc.regtype_names(a) AS
    (SELECT list_transform(a, lambda e: coalesce(z_by_oid[e], e::VARCHAR)) FROM pgc._z_types);
CREATE MACRO pgc.regproc_names(a) AS list_transform(a, lambda e: e::VARCHAR);
CREATE MACRO pgc.to_regclass(a) AS pgc.regclass_oid(a);
CREATE MACRO pgc.to_regtype(a) AS pgc.regtype_oid(a);
CREATE MACRO pgc.to_regproc(a) AS
    CASE WHEN pgc.regproc_oid(a) IS NOT NULL THEN pgc.regproc_name(a) END;
CREATE MACRO pgc.to_regnamespace(a) AS pgc.regnamespace_oid(a);
CREATE MACRO pgc.to_regrole(a) AS pgc.regrole_oid(a);

CREATE MACRO pgc.pg_get_keywords() AS TABLE SELECT * FROM pgc.keywords;
CREATE MACRO pgc.pg_show_all_settings() AS TABLE SELECT * FROM pgc.pg_settings;
CREATE MACRO pgc.pg_options_to_table(a) AS TABLE
    SELECT split_part(o, '=', 1) AS option_name, split_part(o, '=', 2) AS option_value
    FROM unnest(a) AS u(o);
-- Nobody was granted anything, so there is nothing to list.
CREATE MACRO pgc.aclexplode(a) AS unnest([]::STRUCT(grantor UINTEGER, grantee UINTEGER,
    privilege_type VARCHAR, is_grantable BOOLEAN)[]);
CREATE MACRO pgc.aclexplode_rows(a) AS TABLE
    SELECT 0::UINTEGER AS grantor, 0::UINTEGER AS grantee, o AS privilege_type,
        false AS is_grantable FROM unnest(a) AS u(o) WHERE false;
CREATE MACRO pgc.pg_timezone_names() AS TABLE
    SELECT 'UTC' AS name, 'UTC' AS abbrev, INTERVAL 0 SECOND AS utc_offset, false AS is_dst;
CREATE MACRO pgc.pg_listening_channels() AS TABLE SELECT '' AS pg_listening_channels WHERE false;

"""PostgreSQL functions with a constant result here.

A release has no expressions, defaults, indexes or triggers, so what would print them gives NULL.
"""

from __future__ import annotations

NOTHING: dict[str, tuple[str, ...]] = {
    "pg_get_expr": ("a, b", "a, b, c"),
    "pg_get_constraintdef": ("a", "a, b"),
    "pg_get_indexdef": ("a", "a, b, c"),
    "pg_get_viewdef": ("a", "a, b"),
    "pg_get_functiondef": ("a",),
    "pg_get_function_sqlbody": ("a",),
    "pg_get_serial_sequence": ("a, b",),
    "pg_get_statisticsobjdef_columns": ("a",),
    "pg_get_triggerdef": ("a", "a, b"),
    "pg_get_ruledef": ("a", "a, b"),
    "pg_get_partkeydef": ("a",),
    "pg_get_partition_constraintdef": ("a",),
    "pg_describe_object": ("a, b, c",),
    "pg_tablespace_location": ("a",),
    "inet_server_addr": ("",),
    "inet_client_addr": ("",),
    "pg_export_snapshot": ("",),
    "shobj_description": ("a, b",),
}

CONSTANT: dict[str, dict[str, tuple[str, ...]]] = {
    # Everything that is shown may be seen.
    "true": {
        "pg_type_is_visible": ("a",),
        "pg_function_is_visible": ("a",),
        "pg_collation_is_visible": ("a",),
        "pg_opclass_is_visible": ("a",),
        "pg_operator_is_visible": ("a",),
        "pg_conversion_is_visible": ("a",),
        "pg_statistics_obj_is_visible": ("a",),
        "pg_ts_config_is_visible": ("a",),
        "pg_has_role": ("a, b", "a, b, c"),
        "pg_try_advisory_lock": ("a", "a, b"),
        "pg_try_advisory_xact_lock": ("a", "a, b"),
        "pg_advisory_unlock": ("a", "a, b"),
    },
    "false": {
        "pg_relation_is_publishable": ("a",),
        "pg_is_in_recovery": ("",),
        "pg_is_other_temp_schema": ("a",),
        "row_security_active": ("a",),
        "pg_column_is_updatable": ("a, b, c",),
        "pg_cancel_backend": ("a",),
        "pg_terminate_backend": ("a", "a, b"),
        "pg_jit_available": ("",),
        "pg_index_column_has_property": ("a, b, c",),
    },
    "0::BIGINT": {
        "pg_relation_size": ("a", "a, b"),
        "pg_total_relation_size": ("a",),
        "pg_table_size": ("a",),
        "pg_indexes_size": ("a",),
        "pg_database_size": ("a",),
        "pg_tablespace_size": ("a",),
        "pg_stat_get_numscans": ("a",),
        "pg_stat_get_live_tuples": ("a",),
        "pg_stat_get_dead_tuples": ("a",),
    },
    "0::UINTEGER": {"pg_my_temp_schema": ("",), "pg_relation_filenode": ("a",)},
    "0::INTEGER": {
        "inet_server_port": ("",),
        "inet_client_port": ("",),
        "pg_relation_is_updatable": ("a, b",),
    },
    "0::DOUBLE": {"pg_notification_queue_usage": ("",)},
    "NULL::BIGINT": {"pg_sequence_last_value": ("a",), "txid_current_if_assigned": ("",)},
    "''": {  # void
        "pg_advisory_lock": ("a", "a, b"),
        "pg_advisory_xact_lock": ("a", "a, b"),
        "pg_advisory_unlock_all": ("",),
    },
    "'UTF8'": {"pg_client_encoding": ("",), "getdatabaseencoding": ("",)},
    "[]::INTEGER[]": {"pg_blocking_pids": ("a",)},
    "TIMESTAMPTZ '2000-01-01 00:00:00+00'": {
        "pg_postmaster_start_time": ("",),
        "pg_conf_load_time": ("",),
    },
    "1::BIGINT": {"txid_current": ("",), "pg_current_xact_id": ("",)},
}

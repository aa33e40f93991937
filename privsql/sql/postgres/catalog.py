"""Catalog queries: relations, functions and objects by name.

Routing goes by the tables and functions of the parsed statement.  In a statement that goes to
the catalog, relations are those of the schema ``pgc`` (pg_catalog) or ``pgi`` (information_schema)
and functions are macros of ``pgc``, because DuckDB has schemas and functions of the same
names that say other things.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp, parse_one

from privsql.sql.expressions import call
from privsql.sql.nodes import bare, place_of, rewritten, sources_of
from privsql.sql.postgres.commands import MixedTables
from privsql.sql.postgres.functions.sets import in_from
from privsql.sql.postgres.functions.texts import formatted
from privsql.sql.postgres.types import object_type, type_name

SCHEMAS = {"pg_catalog": "pgc", "information_schema": "pgi"}

# Functions with one answer here, each with the numbers of parameters that it takes.  A release
# has no expressions, defaults, indexes or triggers, so what would print them gives NULL.
CONSTANT = {
    "NULL::VARCHAR": """
        pg_get_expr/2/3 pg_get_constraintdef/1/2 pg_get_indexdef/1/3 pg_get_viewdef/1/2
        pg_get_functiondef/1 pg_get_function_sqlbody/1 pg_get_serial_sequence/2
        pg_get_statisticsobjdef_columns/1 pg_get_triggerdef/1/2 pg_get_ruledef/1/2
        pg_get_partkeydef/1 pg_get_partition_constraintdef/1 pg_describe_object/3
        pg_tablespace_location/1 inet_server_addr/0 inet_client_addr/0 pg_export_snapshot/0
        shobj_description/2
    """,
    # Everything that is shown may be seen.
    "true": """
        pg_type_is_visible/1 pg_function_is_visible/1 pg_collation_is_visible/1
        pg_opclass_is_visible/1 pg_operator_is_visible/1 pg_conversion_is_visible/1
        pg_statistics_obj_is_visible/1 pg_ts_config_is_visible/1 pg_has_role/2/3
        pg_try_advisory_lock/1/2 pg_try_advisory_xact_lock/1/2 pg_advisory_unlock/1/2
    """,
    "false": """
        pg_relation_is_publishable/1 pg_is_in_recovery/0 pg_is_other_temp_schema/1
        row_security_active/1 pg_column_is_updatable/3 pg_cancel_backend/1
        pg_terminate_backend/1/2 pg_jit_available/0 pg_index_column_has_property/3
    """,
    "0::BIGINT": """
        pg_relation_size/1/2 pg_total_relation_size/1 pg_table_size/1 pg_indexes_size/1
        pg_database_size/1 pg_tablespace_size/1 pg_stat_get_numscans/1
        pg_stat_get_live_tuples/1 pg_stat_get_dead_tuples/1
    """,
    "0::UINTEGER": "pg_my_temp_schema/0 pg_relation_filenode/1",
    "0::INTEGER": "inet_server_port/0 inet_client_port/0 pg_relation_is_updatable/2",
    "0::DOUBLE": "pg_notification_queue_usage/0",
    "NULL::BIGINT": "pg_sequence_last_value/1 txid_current_if_assigned/0",
    "''": "pg_advisory_lock/1/2 pg_advisory_xact_lock/1/2 pg_advisory_unlock_all/0",  # void
    "'UTF8'": "pg_client_encoding/0 getdatabaseencoding/0",
    "[]::INTEGER[]": "pg_blocking_pids/1",
    "TIMESTAMPTZ '2000-01-01 00:00:00+00'": "pg_postmaster_start_time/0 pg_conf_load_time/0",
    "1::BIGINT": "txid_current/0 pg_current_xact_id/0",
}

# Whether somebody has a privilege: the last parameter names it.
PRIVILEGES = """
    has_table_privilege/2/3 has_schema_privilege/2/3 has_database_privilege/2/3
    has_any_column_privilege/2/3 has_sequence_privilege/2/3 has_function_privilege/2/3
    has_language_privilege/2/3 has_tablespace_privilege/2/3 has_column_privilege/3/4
"""

# Functions that only the catalog answers; each is a macro there.
_FUNCTIONS = """
    version current_database current_schemas current_setting set_config pg_backend_pid
    pg_get_userbyid pg_get_function_result pg_get_function_arguments
    pg_get_function_identity_arguments pg_table_is_visible pg_encoding_to_char
    pg_char_to_encoding format_type obj_description col_description quote_ident quote_literal
    pg_size_pretty to_regclass to_regtype to_regproc to_regnamespace to_regrole pg_typeof
    pg_sleep pg_get_keywords pg_options_to_table aclexplode aclexplode_rows pg_show_all_settings
    pg_timezone_names pg_listening_channels current_user session_user current_schema
    current_catalog _pg_expandarray _pg_truetypid _pg_truetypmod _pg_char_max_length
    _pg_numeric_precision _pg_numeric_scale _pg_datetime_precision
    regclass_name regclass_oid regtype_name regtype_oid regnamespace_name regnamespace_oid
    regrole_name regrole_oid regproc_name regproc_oid regclass_names regtype_names regproc_names
"""
_COUNTED = " ".join([*CONSTANT.values(), PRIVILEGES])
FUNCTIONS = frozenset(_FUNCTIONS.split()) | {each.split("/")[0] for each in _COUNTED.split()}

# Of these DuckDB has its own, which are as good unless the statement is the catalog's.
_OVERRIDDEN = frozenset({"array_to_string", "array_upper", "array_lower", "json_build_object"})
MACROS = FUNCTIONS | _OVERRIDDEN

# Table functions and macros; all others are values, in FROM as well.
_TABLES = frozenset(
    {"generate_series", "unnest", "regexp_split_to_table"}
    | {"pg_get_keywords", "pg_options_to_table", "aclexplode_rows", "pg_show_all_settings"}
    | {"pg_timezone_names", "pg_listening_channels"}
)

# Columns that are functions' numbers (regproc): shown by name, compared as numbers.
_REGPROC = """
    aggcombinefn aggdeserialfn aggfinalfn aggfnoid aggmfinalfn aggminvtransfn aggmtransfn
    aggserialfn aggtransfn amhandler amproc conproc oprcode oprjoin oprrest prosupport prsend
    prsheadline prslextype prsstart prstoken rngcanonical rngsubdiff tmplinit tmpllexize trffromsql
    trftosql typanalyze typinput typmodin typmodout typoutput typreceive typsend typsubscript
"""
REGPROC = frozenset(_REGPROC.split())

# Columns that every table has in PostgreSQL; nothing changes here, so they are all alike.
_TRANSACTIONS = ("xmin", "xmax", "cmin", "cmax")
SYSTEM = frozenset({*_TRANSACTIONS, "ctid", "tableoid"})
# Whose age() is asked for, in transactions.
_AGES = frozenset(
    {*_TRANSACTIONS, "relfrozenxid", "datfrozenxid", "relminmxid", "datminmxid"}
    | {"transactionid", "backend_xid", "backend_xmin"}
)

# Columns that tell rows of a relation apart and are in the order of PostgreSQL's own rows.
_ROWS = {
    "pg_attribute": ("attrelid", "attnum"),
    "pg_class": ("oid",),
    "pg_tables": ("tablename",),
    "information_schema.tables": ("table_name",),
    "information_schema.columns": ("table_name", "ordinal_position"),
}
# Without any of these, each row of a statement is one of each relation.
_TOGETHER = ("group", "having", "distinct", "order")

_CLASSES: dict[type[exp.Expr], str] = {
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentSchemas: "current_schemas",
    exp.CurrentCatalog: "current_database",
    exp.CurrentDatabase: "current_database",
    exp.CurrentVersion: "version",
    exp.ArrayToString: "array_to_string",
    exp.Typeof: "pg_typeof",
}


def sources(tree: exp.Expr) -> list[exp.Table]:
    """The tables that a statement names, without those that its WITH defines."""
    return [
        table
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not _is_cte(table)
    ]


def _is_cte(table: exp.Table) -> bool:
    if table.text("db"):
        return False
    name, holder = table.name.lower(), table.parent
    inside: exp.CTE | None = None
    while holder is not None:
        if isinstance(holder, exp.CTE):
            inside = holder
        found = holder.args.get("with_")
        if isinstance(found, exp.With):
            for cte in found.expressions:
                if cte is inside and not found.args.get("recursive"):
                    break  # neither itself nor those after it
                if cte.alias.lower() == name:
                    return True
        holder = holder.parent
    return False


def of_catalog(table: exp.Table) -> bool:
    """Whether a table is the catalog's: by its schema, or by a name that PostgreSQL keeps."""
    schema = table.text("db").lower()
    return schema in SCHEMAS or (not schema and table.name.lower().startswith("pg_"))


def called(node: exp.Expr) -> str:
    """The name of a function of the catalog, or nothing."""
    if isinstance(node, exp.Anonymous):
        name = str(node.this).lower()
        return name if name in MACROS else ""
    if isinstance(node, exp.Column) and not node.table and not node.this.args.get("quoted"):
        return "current_user" if node.name.lower() in ("user", "current_role") else ""
    return _CLASSES.get(type(node), "")


def kind_of(tree: exp.Expr, text: str) -> tuple[str, tuple[str, ...]]:
    """Whether a query is for a session or the catalog, and the tables that it names."""
    tables = sources(tree)
    ours = [table for table in tables if not of_catalog(table)]
    names = tuple(dict.fromkeys(_shown(table) for table in tables))
    theirs = next((table for table in tables if of_catalog(table)), None)
    function = next((n for n in tree.walk() if called(n) in FUNCTIONS), None)
    cast = next((n for n in tree.find_all(exp.Cast) if object_type(n.args["to"]) is not None), None)
    about = theirs or function or cast
    if not ours:
        return ("catalog" if about is not None else "constant"), names
    if about is not None:
        raise MixedTables(
            "a published table and PostgreSQL's catalog cannot be queried in one statement",
            hint="query them in separate statements",
            place=place_of(about, text) or place_of(ours[0], text),
        )
    return "query", names


def _shown(table: exp.Table) -> str:
    schema = table.text("db").lower()
    name = table.name if table.this.args.get("quoted") else table.name.lower()
    return name if schema in ("", "public") else f"{schema}.{name}"


def settings(tree: exp.Expr) -> Iterator[tuple[str, str, bool]]:
    """What ``set_config('name', 'value', local)`` sets; a value ``$1`` is the parameter's."""
    for node in tree.find_all(exp.Anonymous):
        if str(node.this).lower() != "set_config" or len(node.expressions) != 3:
            continue
        name, value, local = node.expressions
        if isinstance(name, exp.Literal) and isinstance(value, exp.Literal | exp.Parameter):
            shown = value.name if isinstance(value, exp.Literal) else f"${value.name}"
            yield name.name.lower(), shown, isinstance(local, exp.Boolean) and bool(local.this)


class ForCatalog:
    """Rewrites a statement for the catalog's database."""

    def __init__(self, text: str) -> None:
        self._text = text

    def tree(self, tree: exp.Expr) -> exp.Expr:
        """All nodes, those below others first; relations last, while their schemas are known."""
        _name_functions(tree)
        _as_stored(tree)
        for call_ in list(tree.find_all(exp.Anonymous)):
            if str(call_.this).lower() == "age" and _ages(call_):
                call_.replace(exp.Literal.number(1))
        for column in list(tree.find_all(exp.Column)):
            _system_column(column)
        for table in sources(tree):
            if of_catalog(table):
                schema = SCHEMAS.get(table.text("db").lower(), "pgc")
                table.set("db", exp.to_identifier(schema))
                table.set("catalog", None)
                table.set("this", exp.to_identifier(table.name.lower(), quoted=True))
        return rewritten(tree, self._node)

    def _node(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Dot) and schema_call(node):
            call: exp.Expr = node.expression
            return call
        if isinstance(node, exp.Cast) and (found := object_type(node.args["to"])) is not None:
            return _object(node, *found)
        if isinstance(node, exp.Format) and isinstance(node.this, exp.Literal):
            made = formatted(node.this.name, node.expressions, lambda x: macro("quote_ident", x))
            return made or node
        name = called(node)
        if name == "pg_typeof":
            return exp.Anonymous(this="typeof", expressions=_arguments(node))
        if name:
            return macro(name, *_arguments(node))
        return in_from(node, _TABLES)


def _name_functions(tree: exp.Expr) -> None:
    """Numbers of functions as their names, where they are shown or compared with text."""
    shown = tree
    while isinstance(shown, exp.SetOperation | exp.Subquery):
        shown = shown.this
    for node in list(tree.find_all(exp.Column)):
        if node.name.lower() not in REGPROC:
            continue
        parent = node.parent
        if isinstance(parent, exp.EQ | exp.NEQ):
            other = parent.expression if parent.this is node else parent.this
            if other.is_string:
                other.replace(call("regproc_oid", other.copy()))
        elif _is_cast(parent, "text", "varchar", "name") or parent is shown:
            made = call("regproc_name", node.copy())
            node.replace(exp.alias_(made, node.name) if parent is shown else made)


def _as_stored(tree: exp.Expr) -> None:
    """Have joined rows in the order of tables and columns where no other was asked for.

    A join of DuckDB's gives them in any order.  PostgreSQL promises none either, but there they
    come as they are stored, and tools that list columns rely on that.
    """
    if not isinstance(tree, exp.Select) or any(tree.args.get(each) for each in _TOGETHER):
        return
    if len(found := sources_of(tree)) < 2 or any(map(_aggregates, tree.expressions)):
        return
    for source in found:
        if not isinstance(source, exp.Table) or not of_catalog(source) or _is_cte(source):
            continue
        schema, alias = source.text("db").lower(), source.args.get("alias")
        name = f"{schema}." * (schema == "information_schema") + source.name.lower()
        if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
            continue
        quoted = bool((alias.this if alias else source.this).args.get("quoted"))
        for column in _ROWS.get(name, ()):
            made = exp.column(column, exp.to_identifier(source.alias_or_name, quoted=quoted))
            tree.order_by(exp.Ordered(this=made, nulls_first=False), copy=False)


def _aggregates(node: exp.Expr) -> bool:
    """Whether rows become one, as far as functions are known by name."""
    return any(
        isinstance(each, exp.AggFunc | exp.AnonymousAggFunc)
        or (isinstance(each, exp.Anonymous) and str(each.this).lower().endswith("_agg"))
        for each in node.walk(prune=lambda inner: isinstance(inner, exp.Query))
    )


def _ages(node: exp.Anonymous) -> bool:
    arguments = node.expressions
    return len(arguments) == 1 and arguments[0].name.lower() in _AGES


def _system_column(node: exp.Column) -> None:
    """``xmin``, ``ctid``, ``tableoid`` of a catalog's table as what they would be, in place."""
    name = node.name.lower()
    if name not in SYSTEM:
        return
    table = _table_of(node)
    if table is None:
        return
    if name == "tableoid":
        schema = table.text("db").lower() or "pg_catalog"
        made = call("regclass_oid", exp.Literal.string(f"{schema}.{table.name.lower()}"))
    elif name == "ctid":
        made = exp.Literal.string("(0,1)")
    else:
        made = parse_one("1::oid", dialect="postgres")
    node.replace(exp.alias_(made, node.name) if isinstance(node.parent, exp.Select) else made)


def _table_of(node: exp.Column) -> exp.Table | None:
    """The catalog's table that a column without a definition of its own must be of."""
    select = node.find_ancestor(exp.Select)
    while select is not None:
        found = [s for s in sources_of(select) if not node.table or s.alias_or_name == node.table]
        if found:
            first = found[0]
            if not isinstance(first, exp.Table) or not isinstance(first.this, exp.Identifier):
                return None
            return first if of_catalog(first) and not _is_cte(first) else None
        select = select.find_ancestor(exp.Select)
    return None


def _object(node: exp.Cast, kind: str, listed: bool) -> exp.Expr:
    """``x::regclass``: a name where it is shown, a number where it is compared.

    Text is always looked up; a number stays one unless it is shown.
    """
    kind = "regproc" if kind in ("regprocedure", "regoper", "regoperator") else kind
    inner: exp.Expr = node.this
    if listed:
        return macro(f"{kind}_names", inner)
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    if _is_text(bare(inner)):
        inner = macro(f"{kind}_oid", inner)
    shown = isinstance(parent, exp.Select | exp.Alias | exp.Ordered)
    return (
        macro(f"{kind}_name", inner)
        if shown or _is_cast(parent, "text", "varchar", "name")
        else inner
    )


_TEXTUAL = (exp.Literal, exp.Parameter, exp.DPipe, exp.Dot, exp.Anonymous)


def _is_text(node: exp.Expr) -> bool:
    """Whether it is text: columns of names are (``relname``, ``udt_name``), other ones numbers."""
    if isinstance(node, exp.Column):
        return node.name.lower().endswith("name")
    return isinstance(node, _TEXTUAL) or _is_cast(node, "text", "varchar", "name")


def _is_cast(node: exp.Expr | None, *types: str) -> bool:
    return isinstance(node, exp.Cast) and type_name(node.args["to"]) in types


def macro(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A call of one of the catalog's macros."""
    call = exp.Anonymous(this=name, expressions=list(arguments))
    return exp.Dot(this=exp.to_identifier("pgc"), expression=call)


def schema_call(node: exp.Dot) -> bool:
    """Whether it is a call with a schema's name before it: ``pg_catalog.version()``."""
    if not isinstance(node.this, exp.Identifier):
        return False
    schema = node.this.name.lower()
    return schema in (*SCHEMAS, "public") and isinstance(node.expression, exp.Func | exp.Dot)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    if isinstance(node, exp.ArrayToString):
        found = [node.this, node.expression, node.args.get("null")]
        return [each for each in found if each is not None]
    if isinstance(node, exp.Typeof | exp.CurrentSchemas) and node.this is not None:
        return [node.this]
    return [exp.true()] if isinstance(node, exp.CurrentSchemas) else []

"""Word lists of the translation from PostgreSQL: reserved words, refused functions."""

from __future__ import annotations

from sqlglot import exp

# Words that DuckDB keeps for itself and PostgreSQL does not.
_RESERVED = """
    anti asof at columns describe glob grouping_id lambda map pivot pivot_longer pivot_wider
    positional qualify semi show struct summarize try_cast tuple unpack unpivot
"""
RESERVED = frozenset(_RESERVED.split())

# Functions whose namesake in DuckDB does something else, or that change something.
_REFUSED = """
    format encode decode regexp_matches regexp_match regexp_substr regexp_count regexp_instr
    get_bit set_bit get_byte set_byte sha224 sha256 sha384 sha512 to_number initcap date_bin
    width_bucket overlay nextval currval setval lastval setseed like_escape parse_ident
    getvariable query query_table sleep_ms write_log getenv current_query
"""
REFUSED = frozenset(_REFUSED.split())

REFUSED_CLASSES: dict[type[exp.Expr], str] = {
    exp.BitString: "bit strings",
    exp.HexString: "bit strings",
    exp.Format: "format()",
    exp.Encode: "encode()",
    exp.Decode: "decode()",
    exp.SHA2: "sha256()",
    exp.ToNumber: "to_number()",
    exp.Initcap: "initcap()",
    exp.DateBin: "date_bin()",
    exp.WidthBucket: "width_bucket()",
    exp.Overlay: "overlay()",
    exp.Lock: "FOR UPDATE and FOR SHARE",
    exp.Into: "SELECT INTO",
    exp.Operator: "OPERATOR()",
}

RENAMED = {
    "every": "bool_and",
    "octet_length": "strlen",
}

COLLATIONS = ("c", "posix", "default", "ucs_basic", "c.utf8", "c.utf-8")

# Fields of a time that mean the same in both; seconds are rewritten.
_FIELDS = """
    CENTURY DAY DECADE DOW DAYOFWEEK DOY DAYOFYEAR EPOCH HOUR ISODOW ISOYEAR MICROSECOND
    MICROSECONDS MILLENNIUM MILLISECOND MILLISECONDS MINUTE MONTH QUARTER WEEK YEAR
"""
FIELDS = frozenset(_FIELDS.split())

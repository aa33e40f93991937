"""Bytes of the PostgreSQL protocol.

transport  messages in and answers out, within bounds
codec      messages as bytes
types      DuckDB's types as PostgreSQL's
decode     values that a client binds
values     values of rare types
encode     columns as rows of the protocol
results    RowDescription, DataRow and COPY
"""

"""Statements of PostgreSQL's dialect, as commands for a server and SQL for a session.

lexer         words of a text, read one after the other
types         names of types
names         names of columns that have none
commands      what a statement asks for
placeholders  parameters that are columns
division, rounding, clock   functions that mean something else in DuckDB
functions     functions that DuckDB lacks
rewrite       expressions of PostgreSQL as those of DuckDB
catalog       queries of system tables
statements    SET, SHOW, BEGIN, COPY and the like
read          text to commands
"""

"""The path of a query, whoever asks.

settings      what SET and options change
caches        answers that may be given again
planner       everything that is decided before a published row is read
executor      scans, and what is loaded for a reconstruction
gate          which cells may be answered
result        the last table as an outcome
described     DESCRIBE, SHOW TABLES, SUMMARIZE
audit_tables  tables of an audit, made when they are asked for
log           the log of a server's statements
session       all of it in order
"""

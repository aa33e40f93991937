"""Releases as a read-only PostgreSQL database, for any PostgreSQL client.

errors      what goes wrong, as fields of an ErrorResponse
protocol    bytes and messages, values in and rows out
auth        startup, passwords, users
catalog     what clients ask about tables and types
settings    run-time parameters
clock       the time of a statement
cursors     prepared statements, portals and replies
prepared    PREPARE and EXECUTE
releases    which releases are served, and sessions for them
scheduler   threads shared out among users
workers     statements: who reads, describe and answer
state       what a connection keeps between messages
status      health and metrics over HTTP
connection  the messages of one client, in order
server      listens; limits, TLS, cancellation, the end
"""

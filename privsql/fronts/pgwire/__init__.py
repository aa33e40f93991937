"""Releases as a read-only PostgreSQL database, for any PostgreSQL client.

server      listens; connections, limits, TLS, cancellation, the end
channel     bytes to messages and back, with bounded buffers; codec reads and writes them
login       startup and passwords (authentication, users)
connection  the messages of one client, in order
dialogue    what commands do: transactions, settings (parameters), cursors, statements
desk        threads that read, describe and answer; what may be remembered
house       which releases there are, each version under its own path, and sessions for them
sending     rows and copies on their way out (encoding, values, types); arguments come in
catalog     what clients ask about tables and types
"""

from __future__ import annotations

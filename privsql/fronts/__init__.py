"""The ways in: DB-API, SQLAlchemy, a PostgreSQL server, a command line, a shell and a demo."""

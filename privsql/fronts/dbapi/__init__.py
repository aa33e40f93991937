"""DB-API 2.0: ``privsql.connect``."""

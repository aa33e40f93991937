"""SQLAlchemy's dialect.

compiler  constructs as SQL, and types
catalog   what an inspector sees
dialect   the dialect itself
"""

"""System tables of PostgreSQL.

constants  functions with one answer
macros     functions as macros
rows       rows that describe releases
database   the database that holds them
answers    what a client asks of it
"""

"""System tables of PostgreSQL.

macros     functions as macros
rows       rows that describe releases
database   the database that holds them
answers    what a client asks of it
pool       databases in processes of their own
"""

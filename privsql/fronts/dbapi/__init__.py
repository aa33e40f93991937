"""DB-API 2.0 (PEP 249).

connection  connections and cursors on a session
"""

"""The commands: demo; publish, advise, key, audit; info, query, shell; completion.

Of a server: serve, user, history.
"""

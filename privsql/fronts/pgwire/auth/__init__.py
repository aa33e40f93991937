"""Who connects.

scram  SCRAM-SHA-256
users  the file of users
login  the beginning of a connection
"""

"""Who connects.

scram  SCRAM-SHA-256
users  the file of users
throttle  delay after wrong passwords
login  the beginning of a connection
"""

"""Databases in child processes, whose memory the system limits.

footprint  memory that a server can do without
zygote     the process from which children are forked
child      a process with a limit of memory, and the objects in it
confined   the databases of a session in such a process
"""

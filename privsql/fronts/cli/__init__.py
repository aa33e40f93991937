"""The command line.

common      options, errors and terminals
output      stdout, or a file that is written whole
formats     table, CSV, JSON, Parquet
statements  the SQL that a command was given
process     a server as a process
conversion  files of an earlier format, upgraded
commands    one module a command
main        all commands
"""

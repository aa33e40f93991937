"""Sub-queries in conditions, values and joins of published rows: made public, or refused.

scopes      whose columns the names of a sub-query are
frozen      exact answers as constants and tables of constants
correlated  sub-queries over published rows that refer to the rows around them
public      a sub-query as one over public tables and constants alone
"""

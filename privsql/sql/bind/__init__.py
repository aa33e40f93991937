"""A SELECT over published rows to a block: what is grouped, selected and added up.

explicit_joins  joins of FROM as published rows JOIN public table ON equalities
from_clause     tables, joins and columns of FROM
grouping        keys and grouping sets
aggregates      calls, and the sums behind each
pieces          conditions and values as products of a public and a sensitive half
distinct        values that are counted once each
block           all of it together
remainder       the SELECT that is left around a block
comparisons     constants that columns are compared with
unknown_values  values that are not in a domain
rounded_values  values that are not on a grid
"""

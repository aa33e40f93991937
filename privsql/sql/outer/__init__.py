"""The analyst's SQL around blocks, and the errors of what it computes.

calculus    derivatives of expressions
ratios      denominators that cannot be distinguished from zero
frames      rows of a window
totals      windows that add up estimates
error_bars  error bars of an expression over estimates
parts       blocks and columns of a query on the way
select      SELECTs over answers
result      the last SELECT, with its error bars as columns
compile     a whole query
"""

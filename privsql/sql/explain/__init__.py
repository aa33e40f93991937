"""Plans in words: EXPLAIN RECONSTRUCTION and the expansion into predicate states.

wording   expressions as the analyst wrote them
widths    how wide intervals can be
expected  expected errors of aggregates
report    rows of an explanation
explain   the whole of it
brief     ten lines of it
expand    a count as the queries of its predicate states
"""

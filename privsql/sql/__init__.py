"""From SQL text to a plan: the only package that sees sqlglot's trees.

nodes        building blocks of trees
expressions  calls and fields that reconstruction SQL is made of
printing     trees as text
catalog      what is known of a release: columns, domains, public tables
parameters   bound values, and printed statements

parse        text to a statement that may run
subqueries   sub-queries beside published rows, as constants and public tables
bind         a SELECT to a block: keys, conditions and pieces of aggregates
plan         a block to states of its sensitive columns, a scan and a reconstruction
scan         one pass over the published table, in one of five forms
reconstruct  the scan's result to estimates with their errors
outer        the analyst's SQL around blocks, with errors propagated
disclosure   personal groups behind cells, and what masking does to a block
explain      plans and expected errors in words
postgres     statements of PostgreSQL's dialect
"""

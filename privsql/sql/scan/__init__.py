"""One pass over the published table: what is counted or added up.

forms         the five forms, and the choice between them
one_pass      what all forms share, and their interface
state_scan    rows per published state
conjunctions  conditions counted alone and together
distinct      rows of each value, for distinct counts
moments       inverted rows added up, as counts or as weights
"""

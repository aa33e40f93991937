"""Scans that add up inverted rows, so that no state has to be counted.

factors         functions of rows as products of one factor a column
weights         the scan of weights or counts
effective_rows  bounds of effective rows from sums alone
reconstruction  the plan of a block by moments
"""

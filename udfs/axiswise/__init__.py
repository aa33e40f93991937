"""Estimates of many cells at once, column by column.

program      what is asked: published states, functions and classes of each column
contraction  sums over published states
effective    effective rows
solve        everything together
"""

"""Columns and rows perturbed.

draws      where draws come from
retention  a value kept or replaced
finegrain  a retention for each value
swap       values of the column itself
decoy      decoy groups
rows       rows as they stream by
"""

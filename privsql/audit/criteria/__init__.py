"""Formulas, and the verdicts that they give.

amplification     what one channel lets an attacker believe
trials            caps and tails of one group
small_sums        decoy groups
expected          widths of intervals
findings          what an audit found
columns           criteria of one column
public_columns    who is alone, and what tells a sensitive column
verdicts          what holds, fails and helps
release_verdicts  what holds of a whole release
"""

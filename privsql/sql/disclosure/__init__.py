"""Personal groups behind the cells of an answer, and what is hidden of a block.

group_ranges  smallest and largest personal group behind each sum
row_functions answers as weights of public tuples and rows
value_ranges  the same for the values of distinct counts
informative   pieces that depend on sensitive values
evidence      all scans that a decision needs
rounding      estimates without superfluous digits
masking       refused cells as NULL, in the statement itself
"""

"""A scan's small result to estimates with standard errors and intervals.

columns     the names of all columns on the way, with their meaning
inverted    aggregates that have no likelihood
sums        which sums a block needs of its scan
functions   functions over states, inverted
covariance  how two sums vary together
quantiles   quantiles as positions in an order
distinct    distinct counts as products over the rows of a value
axiswise    bases of all cells, column by column
estimates   formulas, covariances and intervals of aggregates
writer      the steps in order
"""

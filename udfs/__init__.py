"""Numeric kernels of reconstruction, as pure functions on arrays.

Nothing here knows of SQL, releases or policies, and nothing of ``privsql`` is imported.
    errors     a caller's mistakes and ours
    kron       products of factors
    invert     inversion
    iterate    non-negative counts over states, and expectation maximisation
    newton     the second-order iteration
    mle        maximum likelihood
    variance   covariances and effective rows
    axiswise   all cells of an answer at once, column by column
    intervals  intervals and their reliability
    quantile   quantiles of reconstructed distributions
    lists      Arrow lists and arrays
    functions  the functions of SQL
    register   registration in DuckDB

Vectors over states have the states on their last axis; leading axes are groups.
"""

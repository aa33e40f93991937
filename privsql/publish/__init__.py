"""From a raw table to a release: the only package that sees raw rows.

    formats   what a file is, by its name and its first bytes
    source    CSV, Parquet or DuckDB
    types     types that Arrow has no word for
    recode    raw values as the spec recodes them
    misfits   values that do not fit the spec, of all columns
    checks    a source opened for its spec, and what is refused of it
    prepare   domain and channel of each column
    keys      the publisher's key, its ledger and its draws
    perturb   columns and rows perturbed
    groups    personal groups: merged, numbered, capped
    database  the database that a release is made in
    staging   the old release, the new one, or none
    rounded   codes of raw values, and how many a grid moved
    report    what was done
    starter   a first spec, guessed on the safe side
    append    batches of later rows
    job       all of it in order

The package is also the function that people call: ``privsql.publish(source, release,
spec=...)`` is :func:`privsql.publish.job.publish`.
"""

from __future__ import annotations

from privsql.verbs import callable_package

callable_package(__name__)

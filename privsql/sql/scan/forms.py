"""The scan form of a block: how one pass over the table computes its sums.

    states        rows counted, and public halves added up, per published state (GROUP BY)
    conjunctions  the same states from counts of conditions that hold together
    counts        inverted rows added up as polynomials in truth values, by count_if
    weights       inverted rows added up as DOUBLEs

All forms that can answer a block give the same estimates, standard errors and intervals, to
rounding, and call the same ones reliable; tests ask every generated query by each of them.
Here, and nowhere else, is decided which one is taken.
"""

from __future__ import annotations

from collections.abc import Collection

STATES, CONJUNCTIONS, COUNTS, WEIGHTS = "states", "conjunctions", "counts", "weights"
FORMS = (STATES, CONJUNCTIONS, COUNTS, WEIGHTS)

# Forms in which the scan adds up inverted rows itself.
MOMENTS = (COUNTS, WEIGHTS)

# Rows from which a pass over the table takes longer than what follows it: below, states are as
# fast as anything, and above DuckDB counts a condition in a tenth of the time of a GROUP BY.
MANY_ROWS = 200_000

# Cells times states up to which a second scan, by states, tells what moments leave open about
# reliability.  Larger answers keep the bound, which calls less reliable and never more.
MOST_RESCANNED = 2**19

WORDS = {
    STATES: "rows are counted per published state",
    CONJUNCTIONS: "conditions are counted alone and together, which makes the states",
    COUNTS: "conditions are counted alone and together, weighted as inverted rows",
    WEIGHTS: "inverted rows are added up as numbers",
}


def choose_form(
    rows: int, able: Collection[str], *, counting_pays: bool = True, forced: str | None = None
) -> str:
    """The form in which a block is scanned.

    ``able`` are the forms that can answer it.  It is asked twice: first between states and
    weights, which is known before either is planned, then between states and conjunctions, or
    counts and weights.  ``counting_pays`` says whether counts are cheaper than weights.  ``forced``
    is for tests and benchmarks; a form that cannot answer the block is not taken.

    >>> choose_form(1_000, ("states", "weights"))
    'states'
    >>> choose_form(1_000_000, ("states", "counts", "weights"))
    'counts'
    >>> choose_form(1_000, ("weights",))
    'weights'
    """
    for wanted in (forced, {CONJUNCTIONS: STATES, COUNTS: WEIGHTS}.get(forced or "")):
        if wanted is not None and wanted in able:
            return wanted
    many = rows >= MANY_ROWS
    if WEIGHTS in able and (many or STATES not in able):
        return COUNTS if COUNTS in able and counting_pays else WEIGHTS
    return CONJUNCTIONS if many and CONJUNCTIONS in able else STATES

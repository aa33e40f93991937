"""The scan form of a block: how one pass over the table computes its sums.

    states        rows counted, and public halves added up, per published state (GROUP BY)
    axes          the same rows, reconstructed column by column instead of over all states
    conjunctions  the same states from counts of conditions that hold together
    counts        inverted rows added up as polynomials in truth values, by count_if
    weights       inverted rows added up as DOUBLEs

All forms that can answer a block give the same estimates, standard errors and intervals, to
rounding, and call the same ones reliable; tests ask every generated query by each of them.
Here, and nowhere else, is decided which one is taken.
"""

from __future__ import annotations

from collections.abc import Collection

STATES, AXES, CONJUNCTIONS = "states", "axes", "conjunctions"
COUNTS, WEIGHTS = "counts", "weights"
FORMS = (STATES, AXES, CONJUNCTIONS, COUNTS, WEIGHTS)

# Forms in which the scan adds up inverted rows itself.
MOMENTS = (COUNTS, WEIGHTS)

# Rows from which a pass over the table takes longer than what follows it: below, states are as
# fast as anything, and above DuckDB counts a condition in a tenth of the time of a GROUP BY.
MANY_ROWS = 200_000

# Cells times states up to which a second scan, by states, tells what moments leave open about
# reliability.  Larger answers keep the bound, which calls less reliable and never more.
MOST_RESCANNED = 2**19

# States times classes of sensitive keys from which the lists over states of the one way cost more
# than the kernel of the other, which is some milliseconds whatever it is asked.
MANY_ENTRIES = 2**8

WORDS = {
    STATES: "rows are counted per published state",
    AXES: "rows are counted per published state, and reconstructed column by column",
    CONJUNCTIONS: "conditions are counted alone and together, which makes the states",
    COUNTS: "conditions are counted alone and together, weighted as inverted rows",
    WEIGHTS: "inverted rows are added up as numbers",
}


def choose_form(
    rows: int,
    able: Collection[str],
    *,
    counting_pays: bool = True,
    entries: int = 0,
    forced: str | None = None,
) -> str:
    """The form in which a block is scanned.

    ``able`` are the forms that can answer it.  It is asked twice: first between states and
    weights, which is known before either is planned, then between states, axes and conjunctions,
    or counts and weights.  ``counting_pays`` says whether counts are cheaper than weights, and
    ``entries`` how long lists over states would be for all classes of sensitive keys.  ``forced``
    is for tests and benchmarks; a form that cannot answer the block is not taken.

    >>> choose_form(1_000, ("states", "weights"))
    'states'
    >>> choose_form(1_000_000, ("states", "counts", "weights"))
    'counts'
    >>> choose_form(1_000, ("weights",))
    'weights'
    >>> choose_form(1_000, ("states", "axes"), entries=250 * 250)
    'axes'
    """
    for wanted in (forced, {AXES: STATES, CONJUNCTIONS: STATES, COUNTS: WEIGHTS}.get(forced or "")):
        if wanted is not None and wanted in able:
            return wanted
    many = rows >= MANY_ROWS
    if WEIGHTS in able and (many or STATES not in able):
        return COUNTS if COUNTS in able and counting_pays else WEIGHTS
    if AXES in able and (entries >= MANY_ENTRIES or STATES not in able):
        return AXES
    return CONJUNCTIONS if many and CONJUNCTIONS in able else STATES

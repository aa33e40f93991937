"""Parameters for a wanted guarantee or a wanted interval width.

    formulas    from guarantees to parameters
    guarantees  lines of a spec, and their meaning
    curves      width against retention
    pilots      pilot publications
    widths      the smallest retention for wanted widths
    text        an advice as text
    job         all of it in order

The package is also the function that people call: ``privsql.advise(source, ...)`` is
:func:`privsql.advise.job.advise`.
"""

from __future__ import annotations

from privsql.verbs import callable_package

callable_package(__name__)

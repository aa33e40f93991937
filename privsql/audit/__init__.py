"""The privacy of a release: what holds, what fails and for whom, and what to change.

    counting    sensitive values by personal group
    groups      reconstruction privacy of groups
    uniqueness  people who are alone by their public values
    links       public columns that tell a sensitive one
    raw         the release beside its raw table
    criteria    formulas and verdicts
    report      text, JSON, tables and HTML
    job         all of it in order

The package is also the function that people call: ``privsql.audit(release, raw=...)`` is
:func:`privsql.audit.job.audit`.
"""

from __future__ import annotations

from privsql.verbs import callable_package

callable_package(__name__)

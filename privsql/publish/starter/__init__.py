"""A starter spec: a guess at every role and domain of a source, on the safe side.

Reading order:

    words      what names of columns say
    evidence   facts of every column, from all rows
    classify   roles by rule
    toml       values as TOML
    domains    domains of sensitive columns
    ladders    levels of public columns
    coarsen    levels at which hardly a row is alone
    budget     what epsilon leaves to each sensitive column
    write      the spec and its summary
    draft      all of it in turn

Nothing here protects anybody by itself: a guess is marked as one, and what cannot be guessed has
``role = "decide"``, which `publish` refuses.
"""

from privsql.publish.starter.draft import drafted, starter

__all__ = ["drafted", "starter"]

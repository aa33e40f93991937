"""Numeric kernels of reconstruction, as pure functions on arrays.

Nothing here knows of SQL, releases or policies, and nothing of ``privsql`` is imported.
Vectors over states have the states on their last axis; leading axes are groups.
"""

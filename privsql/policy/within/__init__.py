"""Functions of rows within atoms, without the rows.

classes    rows that all functions so far treat alike, and a short basis for each such class
bases      orthonormal vectors over those, atom by atom, for many atoms at once
statement  the answers of one statement by itself, from inner products of its functions
"""

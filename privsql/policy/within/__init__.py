"""Functions of rows within atoms, without the rows.

classes    rows that all functions so far treat alike, and a short basis for each such class
bases      orthonormal vectors over those, atom by atom, for many atoms at once
faint      functions of one statement that an account would not use
statement  the answers of one statement by itself, from inner products of its functions
"""

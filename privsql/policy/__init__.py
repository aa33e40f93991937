"""What may be answered.

limits    limits on one statement
personal  personal groups and small cells
blocks    sparse blocks of vectors
basis     bases of what was answered
leverage  how much answers together reveal of one group
vectors   answers as vectors over rows
functions functions of measures, in exact coordinates
factor    a triangular factor of answers
wide      many cells of one statement in an account
account   exact leverage of one user's answers
history   what each user was answered
journal   the log of statements
"""

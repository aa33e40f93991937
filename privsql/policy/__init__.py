"""What may be answered.

limits        limits on one statement
personal      personal groups and small cells
functions     functions of measures, in exact coordinates
within        those coordinates within atoms; the answers of one statement by itself
factor        a triangular factor of answers
wide          many cells of one statement in an account
account       exact leverage of one user's answers
public_rows   the public rows of one state of a table
base          row functions evaluated on them
served_table  a served table with the states that answers are over
history_file  the file of what each user was answered
history       what each user was answered
copies        backups of the history, and the mark that shows a rollback
journal       the log of statements
sketch        accounts of histories of formats 1 and 2
"""

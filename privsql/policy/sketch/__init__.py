"""Accounts of histories of formats 1 and 2, which go on for as long as their release is served.

Within a public tuple their vectors have a few random numbers instead of row functions, so they
cannot become exact: each new answer of such a user is judged there as well as in today's account.

basis        bases of what was answered
combination  bases of many sparse vectors at once
leverage     how much answers together reveal of one group
vectors      answers as vectors over tuples and random numbers
accounts     what users were answered, in these vectors
"""

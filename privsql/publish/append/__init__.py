"""Rows that come later, or from clients.

fitting  public values in the types of a release
batches  files of perturbed rows
entries  local perturbation in a ledger
consent  what a client agrees to
stream   rows of a pipe, piece by piece
local    clients that perturb their own rows
append   batches added to a release
"""

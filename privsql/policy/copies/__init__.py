"""Copies of the history, none of which can take its place in silence.

contents  what a history file holds of each account
mark      the high-water mark beside a history
backup    backing up, verifying and restoring
"""

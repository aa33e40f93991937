"""Six ordinary dashboards, and what limits on leverage cost and buy there.

statements  statements as BI tools write them
boards      the six dashboards
people      rows of a release: personal groups, atoms, public values
cells       cells of a statement as vectors over rows
attempts    attacks on one group, and the error that they reach
measuring   limits against refused cells and against attacks

``python -m tests.policy.dashboards`` prints the table of docs/threat-model.md.
"""

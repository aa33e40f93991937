r"""The interactive shell: ``privsql shell release.duckdb``.

vocabulary  words that the shell knows
style       colours
input       text on its way to a statement
commands    backslash commands
describe    what ``\d`` shows
info        what ``\d+`` and ``privsql info`` show
completion  what Tab offers
execution   a statement under way, and Ctrl-C
display     answers, errors and notices as lines
terminal    keys, history and menu
loop        reads, runs, shows; everything but ``terminal`` works without a terminal
"""

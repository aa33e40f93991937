"""The ways in: command line today; connections and servers stand beside it."""

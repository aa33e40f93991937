"""User interfaces: command line, Python connections and servers."""

"""The oracles: random SQL against plain DuckDB, and estimates against their own error bars."""

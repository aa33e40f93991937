"""From an analyst's text to a plan; the only package that imports sqlglot."""

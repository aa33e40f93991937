"""From an analyst's text to a plan; the only room that imports sqlglot."""

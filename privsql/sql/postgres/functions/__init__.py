"""Functions of PostgreSQL that DuckDB lacks or spells otherwise, as expressions of DuckDB.

patterns   to_char(), to_date(), to_timestamp(): templates of times
numerals   to_char() of numbers
texts      format() with %s, %I and %L
scalars    date_bin(), width_bucket(), initcap(), json_agg() and the like
sets       functions in FROM
"""

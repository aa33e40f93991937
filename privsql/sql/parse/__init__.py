"""SQL text to one statement that may run, or a refusal.

lexing           tokens of a text: parameters and dollar quotes
statement        statements of a text, and what kind each is
guard            queries that cannot be answered, whatever they are about
forbidden        functions and settings that may not run beside the table
parameter_types  parameters without values yet
probes           queries for columns and no rows
about            DESCRIBE, SHOW TABLES, SUMMARIZE, information_schema
written_out      PIVOT, the clock and several quantiles, in plainer words
audit_tables     queries of the tables of an audit
row_listing      published rows themselves, where the publisher allows it
"""

"""What people and programs get of a query.

outcome  rows, error bars and notices
notices  notices that follow from the figures
columns  columns, with error bars where they are asked for
kinds    types of PEP 249
values   rows of Python objects
digits   error bars without superfluous digits
cells    one cell as text
table    rows of cells, cut to what is shown
text     an answer as text
html     an answer for notebooks
export   data frames and charts
result   the object that ``con.sql`` returns
"""

"""The report of an audit.

front          may this go out? three lights, and what to change
text           for a terminal
tables         SQL tables
public_tables  what an analyst may see
charts         SVG
style          light, dark, print and phone
page           HTML
report         all of them
"""

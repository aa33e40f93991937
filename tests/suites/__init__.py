"""Statements of the kind that people and tools write, and how many of them are answered.

``python -m tests.suites`` prints the counts; ``counts.py`` holds those below which none may fall.
"""

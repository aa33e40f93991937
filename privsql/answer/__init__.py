"""Answers: from the result of a scan to estimates with errors, tables and plots."""

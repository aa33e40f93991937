"""Superset, as its users have it, against ``privsql serve``: see ``__main__``."""

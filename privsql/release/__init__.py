"""The published artefact: what the publisher wants, what the public may know, where it is."""

from privsql.release.store import Release
from privsql.release.store import open_release as open

__all__ = ["Release", "open"]

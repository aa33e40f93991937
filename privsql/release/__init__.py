"""The published artefact: spec, manifest and store."""

from privsql.release.store import Release
from privsql.release.store import open_release as open

__all__ = ["Release", "open"]

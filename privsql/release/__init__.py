"""The published artefact.

names     identifiers
formats   versions of files
reading   a spec in TOML
keys      every key of a spec
recoding  values before they are published
columns   columns of a spec
spec      the spec
manifest  what the public may know
folder    the release as a folder of Parquet
store     the release as a file, and either of them opened
shapes    a file as a folder, a folder as a file
"""

from privsql.release.store import Release
from privsql.release.store import open_release as open

__all__ = ["Release", "open"]

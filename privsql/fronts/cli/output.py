"""Output of a command: stdout, or a file that is written atomically."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from privsql.files import written


@contextmanager
def destination(output: Path | None, *, force: bool) -> Iterator[BinaryIO]:
    """The file that was named, or stdout."""
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()  # not at the end of the program: a closed pipe must be heard
    else:
        with written(output, force=force) as stream:
            yield stream


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a person looks at it."""
    return stream is not None and not stream.closed and stream.isatty()

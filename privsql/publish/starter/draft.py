"""From a source to its starter spec."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from privsql.publish.source import Source, as_text, open_source, tabled
from privsql.publish.starter.budget import shared
from privsql.publish.starter.classify import Verdict, classified, unit_of
from privsql.publish.starter.coarsen import coarsened
from privsql.publish.starter.domains import Drawn, drawn
from privsql.publish.starter.evidence import Facts, Progress, gathered
from privsql.publish.starter.ladders import Level, ladder
from privsql.publish.starter.words import meanings
from privsql.publish.starter.write import Draft, Entry, composed

ALONE = "with it more than 1% of the rows are alone in their public columns, however coarse it is"


def starter(source: str, beside: Path | None = None) -> str:
    """Write the TOML of a starter spec for a source.

    A spec names its source from where it lies itself: in the folder ``beside``, or here.
    """
    return drafted(source, beside).text


def drafted(source: str, beside: Path | None = None, progress: Progress | None = None) -> Draft:
    """Guess a starter spec; ``progress`` is told what is being read."""
    with closing(_opened(source)) as raw:
        if progress is not None and raw.csv is not None:
            progress("reading the file")
        raw = tabled(raw)
        facts = gathered(raw, progress)
        verdicts = classified(facts)
        place = unit_of(facts, verdicts)
        unit = facts[place] if place is not None else None
        repeated = unit.name if unit is not None and not unit.unique else None
        ladders = [_levels(raw, *pair) for pair in zip(facts, verdicts, strict=True)]
        rows = facts[0].rows if facts else 0
        coarse = coarsened(raw, rows, ladders, repeated, progress)
    domains = [
        drawn(each) if verdict.role == "sensitive" else None
        for each, verdict in zip(facts, verdicts, strict=True)
    ]
    entries = [
        _entry(facts[i], verdicts[i], ladders[i], coarse.levels[i], domains[i])
        for i in range(len(facts))
    ]
    sizes = [
        (each.name, found.size)
        for each, found in zip(facts, domains, strict=True)
        if isinstance(found, Drawn)
    ]
    named = None if place is None else entries[place]
    return composed(_seen_from(source, beside), entries, shared(sizes, rows), coarse.alone, named)


def _opened(source: str) -> Source:
    """A source whose postcodes are text, as `publish` will read them: 01067 is not 1067."""
    raw = open_source([source])
    codes = [n for n, kind in raw.columns if "postcode" in meanings(n) and kind != "VARCHAR"]
    return as_text(raw, codes)


def _levels(raw: Source, column: Facts, verdict: Verdict) -> tuple[Level, ...]:
    return ladder(raw, column, verdict.kind) if verdict.role == "public" else ()


def _entry(
    column: Facts,
    verdict: Verdict,
    levels: Sequence[Level],
    level: int | None,
    domain: Drawn | str | None,
) -> Entry:
    entry = Entry(column, verdict.role, verdict.why)
    if verdict.role == "public":
        if level is None:
            return replace(entry, role="decide", why=ALONE)
        return replace(entry, lines=levels[level].lines)
    if isinstance(domain, Drawn):
        return replace(entry, lines=('mechanism = "uniform"', *domain.lines))
    if domain is not None:
        return replace(entry, role="decide", why=f"{verdict.why}, but {domain}")
    return entry


def _seen_from(source: str, folder: Path | None) -> str:
    """A source's path as the spec in a folder has to say it."""
    path, sign, table = source.partition("::")
    if folder is None or Path(path).is_absolute() or folder.resolve() == Path.cwd():
        return source
    return Path(os.path.relpath(path, folder.resolve())).as_posix() + sign + table

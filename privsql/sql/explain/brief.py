"""An explanation in about ten lines: what is estimated, from what, how precisely, and whether.

n: estimated by inversion (auto chooses it: it is unbiased, and cells add up)
disease: uniform, retention 0.4, 8 values in 2 cells
precision: condition number 3.08: reconstruction multiplies relative errors by at most 3.08
COUNT(*): ± at most 74.4 over 1,000 rows, 1,290 over all 300,000 (95% interval)
scan: one pass, form counts: conditions are counted alone and together ...
policy: refuse: 0 of 1 cells are about one personal group ...
more: --verbose, verbose=True or EXPLAIN RECONSTRUCTION VERBOSE shows cells, channels and SQL
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from privsql.errors import how_many, printable
from privsql.sql.explain.report import Explained, ExplainedBlock, ExplainedColumn
from privsql.sql.scan.forms import WORDS

MORE = (
    "more: --verbose, verbose=True or EXPLAIN RECONSTRUCTION VERBOSE shows cells, channels and SQL"
)
SHOWN_BLOCKS = 3
SHOWN = 2  # columns of a block, and aggregates; beyond, the first and the names of the others
LONGEST = 60  # characters of an expression


def brief(found: Explained) -> str:
    """What a person wants to know before the question is asked."""
    lines = [*_lines(found), MORE]
    return "\n".join(printable(line) for line in lines) + "\n"


def _lines(found: Explained) -> Iterator[str]:
    if not found.blocks:
        yield f"{_names(found, 'exact') or 'answer'}: exact; one query, nothing is reconstructed"
    elif len(found.blocks) == 1:
        yield from _alone(found.blocks[0], _names(found, "estimate") or "answer")
    else:
        yield from _several(found)


def _names(found: Explained, kind: str) -> str:
    return _list([name for name, each in found.outputs if each == kind])


def _alone(block: ExplainedBlock, names: str) -> Iterator[str]:
    yield f"{names}: {block.how} ({block.why})"
    rows = [f"{_short(text)} (public condition)" for text in block.conditions]
    rows += [
        f"groups of {_short(text)} ({role}{'' if role == 'public' else ': those of its domain'})"
        for text, role in block.keys
    ]
    rows += [f"joined with {name} ({role})" for name, role in block.joins]
    rows += [f"{_short(text)} (public, makes groups of its own)" for text in block.hidden]
    if rows:
        yield f"rows: {'; '.join(rows)}"
    yield from _columns(block.columns)
    if block.columns:
        condition = f"{block.condition:.3g}"
        yield (
            f"precision: condition number {condition}: reconstruction multiplies relative errors"
            f" by at most {condition}"
        )
    yield from _widths(block)
    if block.form:
        passes = "one pass" if len(block.scans) == 1 else f"{len(block.scans)} passes"
        yield f"scan: {passes}, form {block.form}: {WORDS[block.form]}{_states(block)}"
    if block.policy:
        yield f"policy: {block.policy}"


def _several(found: Explained) -> Iterator[str]:
    """Two lines for each block, and the decisions of the policy once."""
    estimated = _names(found, "estimate")
    yield f"{len(found.blocks)} blocks" + (f"; estimated: {estimated}" if estimated else "; exact")
    for block in found.blocks[:SHOWN_BLOCKS]:
        told = [block.how]
        if block.columns:
            told.append(_list([one.name for one in block.columns]) + " perturbed")
            told.append(f"condition number {block.condition:.3g}")
        if block.form:
            told.append(f"scan form {block.form}")
        yield f"block {block.number}: {'; '.join(told)}"
        yield from (f"  {line}" for line in _widths(block, 1))
    if len(found.blocks) > SHOWN_BLOCKS:
        yield f"{how_many(len(found.blocks) - SHOWN_BLOCKS, 'more block')}"
    policies = dict.fromkeys(block.policy for block in found.blocks if block.policy)
    yield from (f"policy: {text}" for text in list(policies)[:SHOWN])


def _columns(columns: Sequence[ExplainedColumn]) -> Iterator[str]:
    most = SHOWN if len(columns) <= SHOWN else 1
    for one in columns[:most]:
        cells = f" in {how_many(len(one.cells), 'cell')}" if one.cells else ""
        yield f"{one.name}: {one.mechanism}, {how_many(one.values, 'value')}{cells}"
    if len(columns) > most:
        rest = [one.name for one in columns[most:]]
        yield f"{how_many(len(rest), 'more perturbed column')}: {_list(rest)}"


def _widths(block: ExplainedBlock, shown: int = SHOWN) -> Iterator[str]:
    told = block.aggregates
    most = shown if len(told) <= shown else 1
    for one in told[:most]:
        yield f"{_short(one.sql)}: {one.short}"
    if len(told) > most:
        rest = [_short(one.sql, LONGEST // 2) for one in told[most:]]
        yield f"{how_many(len(rest), 'more aggregate')}: {_list(rest)}"


def _states(block: ExplainedBlock) -> str:
    if not block.states:
        return ""
    sizes = " x ".join(str(len(one.cells)) for one in block.columns)
    product = f"{sizes} = " if len(block.columns) > 1 else ""
    return f"; {product}{how_many(block.states, 'state')}"


def _list(names: Sequence[str], most: int = 4) -> str:
    """Names in a row, not more than a line takes."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(_short, names[:most])) + more


def _short(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 3].rstrip() + "..."

"""Reconstruction privacy: personal groups of the staged rows cut down to their caps (SPS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
import pyarrow as pa
from duckdb import ColumnExpression

from privsql.channels import Channel
from privsql.publish.groups import group_caps as sps
from privsql.publish.keys.randomness import uniform
from privsql.publish.perturb.rows import ORDER, POSITION, raw_codes
from privsql.publish.prepare import Column
from privsql.publish.report import Notes
from privsql.publish.source import Source
from privsql.release.names import GROUP
from privsql.release.spec import ProtectSpec


def cut_down(
    con: duckdb.DuckDBPyConnection,
    protect: ProtectSpec,
    columns: Sequence[Column],
    channels: Mapping[str, Channel],
    raw: Source,
    rng: np.random.Generator,
    notes: Notes,
) -> None:
    """Cut every group of the table ``staged`` down to s_g rows, with weights or copies."""
    names = [column.name for column in columns]
    staged = con.table("staged").select(
        *(ColumnExpression(name) for name in (GROUP, ORDER, POSITION, *names))
    )
    table = staged.to_arrow_table()
    groups = table.column(GROUP).to_numpy().astype(np.int64)
    position = table.column(POSITION).to_numpy()
    from_raw = protect.source == "raw"
    if from_raw:
        notes.depends_on_raw("group caps were computed from raw frequencies")
    if protect.cap == "exact":
        notes.warn("cap = exact: the size of a cut group reveals its largest frequency")
    codes = [
        raw_codes(raw, column)[position]
        if from_raw
        else column.domain.codes(table.column(column.name))
        for column in columns
    ]
    sizes = sps.caps(
        groups,
        codes,
        [channels[name] for name in names],
        relative_error=protect.relative_error,
        probability=protect.probability,
        cap=protect.cap,  # type: ignore[arg-type]
        source=protect.source,  # type: ignore[arg-type]
    )
    counts = np.bincount(groups, minlength=len(sizes))
    notes.say(f"{int((counts > sizes).sum())} of {int((counts > 0).sum())} groups were cut down")
    if protect.scaling == "duplicate":
        notes.warn("scaling = duplicate: copies reveal the number of trials of a group, hence f")
        notes.depends_on_raw("rows were sampled by their raw values")
        kept = sps.sample_duplicate(groups, raw_codes(raw, columns[0])[position], sizes, rng)
        copies = np.bincount(kept, minlength=len(groups))
        _apply(con, copies=copies)
        return
    order = table.column(ORDER).to_numpy()
    # Rows of one person carry one number: ties are broken at random, never by position.
    mixed = rng.permutation(len(groups))
    weights = np.empty(len(groups))
    weights[mixed] = sps.sample(groups[mixed], sizes, uniform(order[mixed]))[1]
    _apply(con, weights=weights)


def _apply(
    con: duckdb.DuckDBPyConnection,
    *,
    weights: np.ndarray | None = None,
    copies: np.ndarray | None = None,
) -> None:
    if weights is not None:
        con.register("cut", pa.table({"privsql_weight": weights}))
        con.execute(
            "CREATE TEMP TABLE left_over AS SELECT staged.*, cut.privsql_weight"
            " FROM staged POSITIONAL JOIN cut WHERE cut.privsql_weight > 0"
        )
    else:
        con.register("cut", pa.table({"privsql_copies": copies}))
        con.execute(
            "CREATE TEMP TABLE left_over AS SELECT * EXCLUDE (privsql_copies, privsql_copy) FROM"
            " (SELECT staged.*, privsql_copies, unnest(range(privsql_copies)) AS privsql_copy"
            " FROM staged POSITIONAL JOIN cut)"
        )
    con.unregister("cut")
    con.execute("DROP TABLE staged")
    con.execute("ALTER TABLE left_over RENAME TO staged")

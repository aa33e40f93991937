"""Rows of a release: public tuples with their personal groups, and measures by row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import privsql
from privsql.policy.functions import Atoms, Functions
from tests.policy.dashboards.statements import MEASURES, is_measured

Ints = NDArray[np.int64]


class People:
    """Expressions over public columns, one value an atom or one value a row."""

    def __init__(self, tuples: pa.Table, rows: pa.Table | None) -> None:
        self.con = duckdb.connect(config={"threads": 1})
        self.con.register("given", tuples)
        self.con.execute("CREATE TABLE tuples AS SELECT * FROM given")
        self.atoms = Atoms(
            tuples.column("privsql_rows").to_numpy().astype(np.int64),
            tuples.column("privsql_group").to_numpy().astype(np.int64),
        )
        self.atom = np.repeat(np.arange(self.atoms.rows.size), self.atoms.rows)
        if rows is not None:
            self.con.register("found", rows)
            self.con.execute("CREATE TABLE people AS SELECT * FROM found ORDER BY privsql_atom")
        self._known: dict[str, NDArray[Any]] = {}

    @classmethod
    def of(cls, path: Path, labels: bool = False) -> People:
        """The rows of a published file; ``labels`` adds what values were merged into."""
        release = privsql.release.open(path)
        columns = list(release.manifest.groups.columns)
        with release.connection() as con:
            wanted = [f't."{name}"' for name in columns]
            joins = ""
            if labels:
                wanted += [f'"of {c}".label AS "{c}_label"' for c in columns]
                joins = " ".join(
                    f'JOIN privsql."values of {c}" AS "of {c}" ON t."{c}" = "of {c}".value'
                    for c in columns
                )
            tuples = con.sql(
                f"SELECT {', '.join(wanted)}, t.privsql_rows, t.privsql_group"
                f" FROM privsql.tuples t {joins} ORDER BY t.rowid"
            ).to_arrow_table()
            measures = [c.name for c in release.manifest.public if c.name in MEASURES]
            rows = None
            if measures:
                on = " AND ".join(f't."{name}" = p."{name}"' for name in columns)
                shown = ", ".join(f'p."{name}"' for name in (*columns, *measures))
                rows = con.sql(
                    f"SELECT t.rowid AS privsql_atom, {shown}"
                    f" FROM {release.manifest.table} p JOIN privsql.tuples t ON {on}"
                ).to_arrow_table()
                if rows.num_rows != int(tuples.column("privsql_rows").to_numpy().sum()):
                    raise ValueError("rows of this release are not stored one by one")
        return cls(tuples, rows)

    def values(self, text: str) -> NDArray[Any]:
        """An expression by row, in the order of atoms, if it has measures; else by atom."""
        if text not in self._known:
            table = "people" if is_measured(text) else "tuples"
            column = self.con.execute(f"SELECT {text} AS v FROM {table}").fetchnumpy()["v"]
            self._known[text] = np.asarray(column)
        return self._known[text]

    def functions(self) -> Functions:
        """An empty set of measure functions over these rows."""
        return Functions(self.atoms)

    def left_out(self, limit: float) -> Mapping[str, float]:
        """Groups that have more than this share of all rows, which are not protected."""
        sizes = np.bincount(self.atoms.groups, self.atoms.rows)
        sizes = sizes[sizes > 0]
        large = sizes > limit * sizes.sum()
        return {
            "groups": float(large.sum()),
            "of groups": float(sizes.size),
            "rows": float(sizes[large].sum()),
            "of rows": float(sizes.sum()),
            "largest": float(sizes.max() / sizes.sum()),
        }

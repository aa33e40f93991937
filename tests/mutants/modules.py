"""Which modules are changed, and whose tests they have to get through."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Packages and modules that bind, plan, scan and reconstruct.
SQL = (
    "bind/aggregates", "bind/block", "bind/pieces", "plan", "scan", "reconstruct", "outer",
)  # fmt: skip
CHANNELS = ("cells", "mechanisms", "matrices", "channel", "intervals")

# Changes that are given: module, what stands there (once), what is put in its place.  Undoing a
# fix belongs here.
NAMED: tuple[tuple[str, str, str], ...] = (
    # A condition inside a value was ignored from 200,000 rows on.
    ("privsql.sql.scan.moments.weights", "for factor in part.factors:", "for factor in ():"),
)

KERNELS = tuple(
    f"tests/udfs/test_{name}.py"
    for name in ("variance", "kron", "intervals", "mle", "iterate", "quantile")
)
# By the module's last name: tests of tests/sql that are about it.
OWN = {
    "weights": ("moments", "effective"),
    "factors": ("moments", "effective"),
    "reconstruction": ("moments", "effective"),
    "effective_rows": ("effective",),
    "conjunctions": ("conjunctions",),
    "quantiles": ("quantiles",),
    "grids": ("limits",),
    "totals": ("totals", "windows"),
    "frames": ("frames", "windows"),
    "select": ("outer", "windows"),
    "ratios": ("ratios",),
    "error_bars": ("ratios",),
    "calculus": ("ratios",),
    "forms": ("moments",),
    "sums": ("beside",),
    "covariance": ("beside",),
    "state_scan": ("compacted",),
    "states": ("conjunctions",),
    "estimates": ("estimates",),
    "writer": ("estimates",),
}


def modules() -> dict[str, Path]:
    """Dotted names and files of all that plans, scans and reconstructs."""
    base = ROOT / "privsql" / "sql"
    paths = [
        path
        for name in SQL
        for path in (sorted((base / name).rglob("*.py")) or [base / f"{name}.py"])
    ]
    paths += [ROOT / "privsql" / "channels" / f"{name}.py" for name in CHANNELS]
    paths += sorted((ROOT / "udfs").glob("*.py"))
    found = [path for path in paths if path.exists() and path.name not in ("__init__.py",)]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in found}


def files_of(module: str) -> tuple[str, ...]:
    """The tests of a module's package, the nearest first; only those that exist."""
    package, name = module.rsplit(".", 1)
    if package == "udfs":
        wanted: tuple[str, ...] = ("tests/test_worked_numbers.py",)
        if name in ("functions", "lists", "register"):
            wanted = ("tests/udfs/test_register.py", *wanted)
    elif package == "privsql.channels":
        wanted = ("tests/channels/test_cells.py", "tests/channels/test_channel.py")
        wanted += ("tests/channels/test_domain.py", "tests/channels/test_domain_sql.py")
        if name == "intervals":
            wanted = ("tests/channels/test_domain_grid.py", *wanted)
        wanted += ("tests/test_worked_numbers.py",)
    else:
        wanted = tuple(f"tests/sql/test_{each}.py" for each in OWN.get(name, ()))
    return tuple(file for file in wanted if (ROOT / file).exists())


def kernels_of(module: str) -> tuple[str, ...]:
    """The kernels' tests, the module's own first."""
    own = f"tests/udfs/test_{module.rsplit('.', 1)[1]}.py"
    return tuple(sorted(KERNELS, key=lambda file: file != own))

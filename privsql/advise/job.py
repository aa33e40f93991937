"""Advice for publishers: parameters for a given guarantee or interval width.

    guarantee  ── formulas (privsql.advise.formulas) ─────────────────────> lines of a spec
    widths     ── pilots, a curve (privsql.advise.curves), a search ────> the smallest retention

Nothing is published and nothing is entered in a ledger: pilots are made without the key, in a
private folder that is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from privsql.advise import guarantees
from privsql.advise.curves import GRID
from privsql.advise.formulas import epsilon_for_rho
from privsql.advise.text import Advice
from privsql.advise.widths import DRAWS, advise_widths
from privsql.channels.channel import checked_number
from privsql.errors import ProgrammingError
from privsql.publish.perturb.draws import spec_beside
from privsql.release.spec import Spec, refuse_undecided

GOALS = "epsilon, rho, s, relative_error with probability, small_sum, or queries"


def advise(
    spec: str | Path | Spec | None = None,
    source: str | Sequence[str] | None = None,
    *,
    epsilon: float | None = None,
    rho: tuple[float, float] | None = None,
    s: tuple[float, float, float] | None = None,
    relative_error: float | None = None,
    probability: float | None = None,
    people: float | None = None,
    small_sum: float | None = None,
    error: float = 0.3,
    alpha: int = 3,
    queries: Mapping[str, float] | Sequence[tuple[str, float]] = (),
    relative: bool = False,
    values: int | Sequence[int] = (),
    columns: str | Sequence[str] = (),
    retention: float | None = None,
    split: str = "equal",
    sample: int | None = None,
    draws: int = DRAWS,
    grid: Sequence[float] = GRID,
    seed: int | None = None,
    say: Callable[[str], None] | None = None,
) -> Advice:
    """Lines of a spec that reach one goal, and what they mean.

    Wanted is one of: a total ``epsilon``; ``rho = (rho1, rho2)``; ``s = (s, rho1, rho2)``;
    ``relative_error`` and ``probability`` (lambda and delta; ``people``: without cutting groups
    of so many); ``small_sum`` (T_P, with ``error`` e and ``alpha``); or ``queries``, each with
    the half-width that its 95% interval may have (``relative``: as a share of the answer).

    The columns are those of a ``spec``, or ``values`` says how many values each has.  ``grid``
    holds the retentions of the curve that is shown.  A seed makes pilots repeatable, for tests.

    >>> print(advise(epsilon=1, values=3).toml)
    [columns.column]
    mechanism = "uniform"
    retention = 0.3641  # epsilon 0.9998
    """
    pairs = list(queries.items() if isinstance(queries, Mapping) else queries)
    goals = [epsilon, rho, s, small_sum, pairs or None]
    goals.append(None if relative_error is None and probability is None else True)
    if sum(goal is not None for goal in goals) != 1:
        raise ProgrammingError("only one goal can be advised on at a time", hint=f"give {GOALS}")
    rho = None if rho is None else _numbers("rho", rho, 2)  # type: ignore[assignment]
    s = None if s is None else _numbers("s", s, 3)  # type: ignore[assignment]
    wanted = _decided(spec)
    names = [columns] if isinstance(columns, str) else list(columns)
    sizes = [values] if isinstance(values, int) else list(values)
    paths = None if source is None else [source] if isinstance(source, str) else list(source)
    if pairs:
        if wanted is None:
            raise ProgrammingError(
                "a width depends on the data", hint="give the spec, and --source if it names none"
            )
        return advise_widths(
            wanted,
            paths,
            pairs,
            relative=relative,
            columns=names,
            sample=sample,
            draws=draws,
            grid=grid,
            seed=seed,
            say=say,
        )
    if small_sum is not None:
        return guarantees.advise_small_sum(small_sum, error, alpha, wanted, names)
    capped = relative_error is not None or probability is not None
    if capped and wanted is not None and people is None:
        found = guarantees.Columns(())  # the caps are those of all columns of the spec
    else:
        found = guarantees.columns_of(wanted, names, sizes)
    if epsilon is not None:
        epsilon = checked_number(epsilon, "epsilon")
        text = f"goal: epsilon {epsilon:g} (local differential privacy of one person's values)"
        return guarantees.advise_epsilon(epsilon, found, split, text)
    if rho is not None:
        text = (
            f"goal: no ({rho[0]:g}, {rho[1]:g}) breach: a belief of {rho[0]:g} stays below"
            f" {rho[1]:g}, and the other way round"
        )
        return guarantees.advise_epsilon(epsilon_for_rho(*rho), found, split, text)
    if s is not None:
        return guarantees.advise_s(*s, found)
    if relative_error is None or probability is None:
        raise ProgrammingError("lambda and delta go together", hint="give both")
    return guarantees.advise_groups(
        relative_error,
        probability,
        spec=wanted,
        source=paths,
        columns=found,
        retention=retention,
        people=people,
        seed=seed,
    )


def _numbers(name: str, given: object, count: int) -> tuple[float, ...]:
    if not isinstance(given, (tuple, list)) or len(given) != count:
        raise ProgrammingError(f"{name} takes {count} numbers", hint=f"{name} = (..., ...)")
    return tuple(checked_number(each, f"every number of {name}") for each in given)


def _decided(spec: str | Path | Spec | None) -> Spec | None:
    """The spec, read if it is a path, once the role of every column is decided."""
    read = spec_beside(Path(spec)) if isinstance(spec, (str, Path)) else spec
    if read is not None:
        refuse_undecided(read)
    return read

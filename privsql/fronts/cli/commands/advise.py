"""`privsql advise`: its options and output."""

from __future__ import annotations

import sys
from typing import Any

import click

from privsql.fronts.cli.common import PATH, say, say_json


@click.command()
@click.argument("spec", required=False, type=PATH)
@click.option("--spec", "spec_option", type=PATH, help="The same as the argument SPEC.")
@click.option("--source", help="Source of the raw rows; overrides the spec's.")
@click.option("--epsilon", type=float, help="Goal: this epsilon over all columns together.")
@click.option(
    "--rho", type=float, nargs=2, metavar="R1 R2", help="Goal: no belief rises from R1 to R2."
)
@click.option(
    "--s",
    type=float,
    nargs=3,
    metavar="S R1 R2",
    help="Goal: the same, for sets up to S times as likely as by chance.",
)
@click.option(
    "--lambda", "relative_error", type=float, help="Goal: this relative error, with --delta."
)
@click.option("--delta", "probability", type=float, help="The probability for --lambda.")
@click.option(
    "--people",
    type=float,
    help="With --lambda: a retention at which no group of this size is cut down.",
)
@click.option("--small-sum", type=float, metavar="T_P", help="Goal: this small sum privacy.")
@click.option("--error", type=float, default=0.3, help="Relative error e of --small-sum.")
@click.option("--alpha", type=int, default=3, help="The largest small sum of --small-sum.")
@click.option("--query", "queries", multiple=True, help="A query, with --width; repeatable.")
@click.option(
    "--width",
    "widths",
    type=float,
    multiple=True,
    help="Goal: the ± (half of the 95% interval) of the preceding query; give one for all"
    " queries, or one each.",
)
@click.option("--relative", is_flag=True, help="Widths are fractions of the answer: 0.1 is 10%.")
@click.option(
    "--values",
    type=int,
    multiple=True,
    help="Number of values of a column, without a spec; repeatable.",
)
@click.option(
    "--column", "columns", multiple=True, help="Advise on this column of the spec; repeatable."
)
@click.option("--retention", type=float, help="Retention for --lambda, without a spec.")
@click.option(
    "--split",
    type=click.Choice(["equal", "retention"]),
    default="equal",
    help="How columns share an epsilon: equally, or with one retention for all.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    help="Number of rows to sample from a larger source for pilots; 0: all.  [default: 200000]",
)
@click.option(
    "--draws", type=click.IntRange(min=1, max=100), default=2, help="Publications per pilot."
)
@click.option("--seed", type=int, help="For tests: makes pilots reproducible.")
@click.option("--plot", type=PATH, help="Draw the trade-off curve here (.png, .svg, .pdf).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def advise(**given: Any) -> None:
    """Find parameters for a given guarantee or interval width.

    Widths are predicted by pilots: the source is published at several retentions into a private
    folder ($TMPDIR), queried, and deleted; of a large source a sample is used.  Nothing is
    entered in the ledger of the spec's key.

    \b
    Examples:
      privsql advise --epsilon 1 --values 3
      privsql advise clinic.toml --epsilon 2 --split retention
      privsql advise clinic.toml --rho 0.1 0.5 --column illness
      privsql advise --s 68 0.1 0.95 --values 3
      privsql advise clinic.toml --lambda 0.3 --delta 0.3
      privsql advise --small-sum 0.6 --error 0.3 --alpha 3
      privsql advise clinic.toml --plot curve.png --width 150 \\
          --query "SELECT COUNT(*) FROM patients WHERE illness = 'flu'"
    """
    from privsql.advise.job import advise as run
    from privsql.advise.text import check_picture

    options = {name: value for name, value in given.items() if value is not None}
    spec, again = options.pop("spec", None), options.pop("spec_option", None)
    if spec is not None and again is not None:
        raise click.UsageError("the spec is given twice")
    picture, as_json = options.pop("plot", None), options.pop("as_json")
    queries, widths = options.pop("queries"), options.pop("widths")
    _check_goals(options, queries, widths)
    if picture is not None:
        if not queries:
            raise click.UsageError("--plot draws the curve of --query and --width")
        check_picture(picture)
    found = run(
        spec or again,
        queries=list(
            zip(queries, widths * len(queries) if len(widths) == 1 else widths, strict=True)
        ),
        say=_said if sys.stderr.isatty() else None,
        **options,
    )
    if picture is not None:
        found.plot(picture)
    if as_json:
        say_json(found.to_dict())
    else:
        say(str(found))


def _check_goals(options: dict[str, Any], queries: Any, widths: Any) -> None:
    goals = {
        "--epsilon": "epsilon" in options,
        "--rho": "rho" in options,
        "--s": "s" in options,
        "--lambda and --delta": "relative_error" in options or "probability" in options,
        "--small-sum": "small_sum" in options,
        "--query and --width": bool(queries or widths),
    }
    wanted = [name for name, there in goals.items() if there]
    if len(wanted) != 1:
        what = f"{' and '.join(wanted)} are several goals" if wanted else "no goal is given"
        raise click.UsageError(f"{what}: give one of {', '.join(goals)}")
    if ("relative_error" in options) != ("probability" in options):
        raise click.UsageError("--lambda and --delta go together")
    if "people" in options and "relative_error" not in options:
        raise click.UsageError("--people needs --lambda and --delta")
    if (queries or widths) and (not queries or len(widths) not in (1, len(queries))):
        raise click.UsageError(
            f"{len(queries)} queries and {len(widths)} widths: give one --width for all"
            " queries, or one each"
        )


def _said(text: str) -> None:
    say(text, err=True)

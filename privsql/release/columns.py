"""One column of a spec: role, mechanism, domain and retention.

Reading goes in two steps.  ``read_sensitive`` takes the table of a column apart and notes what
is wrong by itself.  ``settled`` then does what needs the size of the domain: it turns an
epsilon or a rho into a retention and refuses a column whose epsilon is above 5 unless that
is accepted.  For an observed domain the second step waits for the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from typing import TypeVar

from privsql.channels import Categorical, Channel, Domain, Grid, Matrix, Replace, Uniform
from privsql.channels.channel import checked_retention, gamma_of_rho
from privsql.channels.domain import MATERIALISE_LIMIT, Value
from privsql.channels.steps import Months, step_text
from privsql.errors import ChannelError
from privsql.release.keys import MECHANISMS as MECHANISMS
from privsql.release.reading import Section, a_kind, as_number, listed, quoted
from privsql.release.recoding import Recoding, read_private

T = TypeVar("T")
Rho = tuple[float, float]
Wrong = Callable[[str, str, str | None], None]

STRENGTH = ("retention", "epsilon", "rho")
NEEDED = {"replace": "replacing", "matrix": "matrix", "decoy": "group_size"}
MECHANISM_KEYS = tuple(dict.fromkeys(key for keys in MECHANISMS.values() for key in keys))

# Mechanisms that can take a share of the release's epsilon.
SHARING = ("uniform", "replace")

# Above it a column needs accept_epsilon = true.
EPSILON_LIMIT = 5.0
GAMMA_LIMIT = math.exp(EPSILON_LIMIT)

DOMAIN_FORMS = 'write domain = ["a", "b"], { lower = 0, upper = 120, step = 1 } or "observed"'


@dataclass(frozen=True)
class FineGrainSpec:
    """How the retentions p_i of a fine-grain column are found (FINE fig. 3).

    ``rho`` holds a pair for each value in domain order (one pair for all while an observed
    domain is not known).  ``theta`` replaces it by the rule of FINE V: with f_i the prior,
    rho1_i = f_i and rho2_i = theta f_i; where f_i >= 1/theta, value i is not protected.
    """

    rho: tuple[Rho, ...] | None = None
    theta: float | None = None
    sides: str = "both"  # or "upward", as in the paper
    floor: float = 0.01  # the least p_i
    prior: tuple[float, ...] | None = None
    prior_from: str = "uniform"  # or "given", or "raw", which costs the release its epsilon


@dataclass(frozen=True)
class ColumnSpec:
    """What is to be done with one column of the source."""

    name: str
    role: str
    grouping: bool = True
    mechanism: str | None = None
    domain: Domain | None = None  # None while it is to be observed
    observed: bool = False  # it is to be, or was and nobody has confirmed it
    nullable: bool = False
    retention: float | None = None
    conversion: str | None = None  # how epsilon or rho became the retention
    wanted_epsilon: float | None = None  # only while the size of the domain is not known
    wanted_rho: Rho | None = None
    share: str | None = None  # of the release's epsilon, in words
    replacing: tuple[float, ...] | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None
    finegrain: FineGrainSpec | None = None
    group_size: int | None = None
    partition: str = "proportional"
    accept_epsilon: bool = False
    accept_unique: bool = False
    recoding: Recoding = field(default_factory=Recoding)
    notice: str | None = None  # what became of its bounds
    line: int | None = field(default=None, compare=False, repr=False)

    def channel(self) -> Channel | None:
        """The channel, where it follows from the spec alone: uniform, replace and matrix."""
        if self.domain is None:
            return None
        if self.mechanism == "uniform" and self.retention is not None:
            return Uniform(self.retention, self.domain.size)
        if self.mechanism == "replace" and self.retention is not None and self.replacing:
            return Replace(self.retention, self.replacing)
        return Matrix(self.matrix) if self.mechanism == "matrix" and self.matrix else None


def read_sensitive(section: Section, name: str, *, shared: bool = False) -> ColumnSpec:
    """Read the table of a sensitive column; after a mistake the result is not to be used.

    ``shared``: the release has an epsilon, of which columns without a strength get a share.
    """
    mechanism = section.choice("mechanism", tuple(MECHANISMS), "")
    if "mechanism" not in section:
        section.wrong(None, "a sensitive column needs a mechanism", f"one of {listed(MECHANISMS)}")
    column = ColumnSpec(
        name,
        "sensitive",
        mechanism=mechanism or None,
        accept_epsilon=section.flag("accept_epsilon"),
        line=section.report.line(section.path),
    )
    column = _read_domain(section, column)
    private = read_private(section, column.domain, observed=column.observed)
    observed = section.flag("observed") or column.observed
    column = replace(column, recoding=private, observed=observed)
    if not mechanism:
        return column
    for key in MECHANISM_KEYS:
        if key in section and key not in MECHANISMS[mechanism]:
            homes = " or ".join(each for each, keys in MECHANISMS.items() if key in keys)
            what = f"does not belong to mechanism {quoted(mechanism)}"
            section.wrong(key, what, f"it is for {homes}")
    found = len(section.report.mistakes)
    if mechanism in NEEDED and NEEDED[mechanism] not in section:
        section.wrong(None, f"{mechanism} needs {NEEDED[mechanism]}")
    if "retention" in MECHANISMS[mechanism]:
        column = _read_strength(section, column, shared=shared)
    if mechanism == "replace":
        column = replace(column, replacing=_distribution(section, "replacing", column))
    elif mechanism == "matrix":
        column = replace(column, matrix=_read_matrix(section, column))
    elif mechanism == "finegrain":
        column = replace(column, finegrain=_read_finegrain(section, column))
    elif mechanism == "decoy":
        column = replace(
            column,
            group_size=section.whole("group_size", 2, 2),
            partition=section.choice("partition", ("proportional", "anatomy"), "proportional"),
        )
    return settled(column, section.wrong) if len(section.report.mistakes) == found else column


def _read_domain(section: Section, column: ColumnSpec) -> ColumnSpec:
    if "domain" not in section:
        section.wrong(None, "a sensitive column needs a domain", DOMAIN_FORMS)
        return column
    given, nullable = section.data["domain"], section.flag("nullable")
    domain: Domain | None = None
    if isinstance(given, dict):
        inside = Section(section.report, (*section.path, "domain"), given)
        ranged = "values" not in given
        inside.unknown(("lower", "upper", "step", "nullable") if ranged else ("values", "nullable"))
        nullable |= inside.flag("nullable")
        if ranged:
            if "lower" not in given or "upper" not in given:
                section.wrong("domain", "a range needs lower and upper", DOMAIN_FORMS)
            else:
                bounds = [given["lower"], given["upper"], given.get("step")]
                domain = section.attempt(
                    "domain", partial(Grid.snapped, nullable=nullable), *bounds
                )
                column = replace(column, notice=_moved(domain, bounds))
            return replace(column, domain=domain, nullable=nullable)
        given = given["values"]
    if given == "observed":
        return replace(column, observed=True, nullable=nullable)
    if not isinstance(given, list):
        shown = quoted(given) if isinstance(given, str) else a_kind(given)
        section.wrong("domain", f'must be a list, a range or "observed", not {shown}', DOMAIN_FORMS)
    else:
        domain = section.attempt("domain", Categorical, _numbers(given), nullable)
    return replace(column, domain=domain, nullable=nullable)


def _moved(domain: Domain | None, bounds: list[object]) -> str | None:
    """What is said of bounds that are no points of their grid."""
    if not isinstance(domain, Grid) or not isinstance(bounds[0], date):
        return None
    if [domain.lower, domain.upper] == bounds[:2]:
        return None
    given, now = (f"{a} to {b}" for a, b in (bounds[:2], (domain.lower, domain.upper)))
    return f"bounds {given} became {now}, the nearest around them in steps of {domain.step_text}"


def _numbers(given: list[object]) -> tuple[Value, ...]:
    """Listed values; numbers of which some have a decimal point are one kind."""
    numbers = [as_number(value) for value in given]
    if None in numbers or not any(isinstance(value, float) for value in given):
        return tuple(given)  # type: ignore[arg-type]
    # Lists of whole numbers fit columns of any numeric type, however they are written.
    # An integer is itself: a double may not hold all of its digits.
    pairs = [(a, b) for a, b in zip(given, numbers, strict=True) if b is not None]
    whole = all(number == int(number) for _, number in pairs)
    exact = [each if isinstance(each, int) else int(number) for each, number in pairs]
    return tuple(exact) if whole else tuple(number for _, number in pairs)


def _read_strength(section: Section, column: ColumnSpec, *, shared: bool) -> ColumnSpec:
    keys = [key for key in STRENGTH if key in MECHANISMS[column.mechanism or ""]]
    given = [key for key in keys if key in section]
    if not given and not (shared and column.mechanism in SHARING):
        section.wrong(None, f"{column.mechanism} needs one of {', '.join(keys)}", "retention = 0.5")
    elif len(given) > 1:
        section.wrong(given[1], f"{given[0]} is given already", f"give one of {', '.join(keys)}")
    if "retention" in given:
        kept = section.attempt("retention", checked_retention, section.data["retention"])
        column = replace(column, retention=kept)
    if "epsilon" in given:
        epsilon = section.data["epsilon"]
        checked = section.attempt("epsilon", Uniform.from_epsilon, epsilon, 2)
        column = replace(column, wanted_epsilon=as_number(epsilon) if checked else None)
    if "rho" in given:
        rho = section.attempt("rho", _pair, section.data["rho"])
        column = replace(column, wanted_rho=rho)
        if rho and "retention" not in given and column.mechanism in ("identity", "swap"):
            # rho1 < (rho2 - p)/(1 - p), OLAP lemma 1, needs no size.
            kept = (rho[1] - rho[0]) / (1 - rho[0])
            text = f"rho = [{rho[0]:g}, {rho[1]:g}] is retention {kept:.3g}"
            column = replace(column, retention=kept, conversion=text, wanted_rho=None)
    return column


def _pair(value: object) -> Rho:
    if not isinstance(value, list) or len(value) != 2:
        raise ChannelError("rho must be a pair [rho1, rho2]", hint="such as rho = [0.1, 0.25]")
    try:
        gamma = gamma_of_rho(*value)
    except (ZeroDivisionError, OverflowError):
        gamma = math.inf
    if not 1 < gamma < 1e15:
        raise ChannelError("rho1 and rho2 are too close to 0, to 1 or to each other")
    return float(value[0]), float(value[1])


def _probability(value: object) -> float:
    number = as_number(value)
    if number is None or not 0 <= number <= 1:
        raise ChannelError(f"must be a probability between 0 and 1, not {quoted(value)}")
    return number


def _per_value(
    section: Section, key: str, column: ColumnSpec, read: Callable[[object], T]
) -> tuple[T, ...] | None:
    """One entry for each value: a list in domain order, or a table by value."""
    domain = column.domain
    if key not in section or (domain is None and not column.observed):
        return None
    if domain is None:
        section.wrong(key, "needs a domain that is listed, not observed", DOMAIN_FORMS)
        return None
    labels = None
    if isinstance(domain, Categorical):
        shown = str if domain.kind == "text" else quoted
        labels = [*map(shown, domain.categories), *["NULL"] * domain.nullable]
    return section.each(key, domain.size, labels, read)


def _distribution(section: Section, key: str, column: ColumnSpec) -> tuple[float, ...] | None:
    entries = _per_value(section, key, column, _probability)
    if entries is not None and abs(math.fsum(entries) - 1) > 1e-9:
        section.wrong(key, f"must sum to 1, and sums to {math.fsum(entries):.6g}")
        return None
    return entries


def _read_matrix(section: Section, column: ColumnSpec) -> tuple[tuple[float, ...], ...] | None:
    rows = _per_value(section, "matrix", column, _row)
    if rows is None or section.attempt("matrix", Matrix, rows) is None:
        return None
    return rows


def _row(value: object) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise ChannelError(f"a row must be a list of probabilities, not {a_kind(value)}")
    return tuple(_probability(entry) for entry in value)


def _read_finegrain(section: Section, column: ColumnSpec) -> FineGrainSpec | None:
    if ("rho" in section) == ("theta" in section):
        section.wrong(None, "finegrain needs either rho or theta", "such as rho = [0.1, 0.25]")
    if column.domain is not None and column.domain.size > MATERIALISE_LIMIT:
        section.wrong("domain", f"finegrain takes at most {MATERIALISE_LIMIT} values")
        return None
    rho, given = None, section.data.get("rho")
    if isinstance(given, list) and not any(isinstance(entry, list) for entry in given):
        pair = section.attempt("rho", _pair, given)
        rho = None if pair is None else (pair,) * (column.domain.size if column.domain else 1)
    elif "rho" in section:
        rho = _per_value(section, "rho", column, _pair)
    prior, source = None, "uniform"
    if isinstance(section.data.get("prior"), str):
        source = section.choice("prior", ("uniform", "raw"), "uniform")
    elif "prior" in section:
        prior, source = _distribution(section, "prior", column), "given"
    floor = section.number("floor", lambda x: 0 <= x < 1, "must lie in 0 to below 1")
    return FineGrainSpec(
        rho=rho,
        theta=section.number("theta", lambda x: x > 1, "must be a number above 1"),
        sides=section.choice("sides", ("both", "upward"), "both"),
        floor=FineGrainSpec.floor if floor is None else floor,
        prior=prior,
        prior_from=source,
    )


def settled(column: ColumnSpec, wrong: Wrong) -> ColumnSpec:
    """Convert what needs the size of the domain, and hold epsilon to its limit."""
    size = column.domain.size if column.domain else None
    if size and column.group_size and column.group_size > size:
        wrong("group_size", f"is above the number of values, {size}", None)
    fine = column.finegrain
    if size and fine and fine.rho and len(fine.rho) == 1:
        column = replace(column, finegrain=replace(fine, rho=fine.rho * size))
    wanted = column
    if size and column.mechanism in ("uniform", "replace") and column.retention is None:
        column = _converted(column, size, wrong)
    if not column.accept_epsilon:
        _limit_epsilon(column, wanted, wrong)
    return column


def _wanted(column: ColumnSpec) -> tuple[str, float, str] | None:
    """Key, gamma and text of what is to be converted."""
    if column.wanted_epsilon is not None:
        text = f"epsilon = {column.wanted_epsilon:.4g}" + (
            f" ({column.share})" * bool(column.share)
        )
        return "epsilon", math.exp(column.wanted_epsilon), text
    rho = column.wanted_rho
    if rho is None and column.finegrain and column.finegrain.rho:
        rho = column.finegrain.rho[0] if len(set(column.finegrain.rho)) == 1 else None
    return rho and ("rho", gamma_of_rho(*rho), f"rho = [{rho[0]:g}, {rho[1]:g}]")


def _converted(column: ColumnSpec, size: int, wrong: Wrong) -> ColumnSpec:
    """Largest retention that keeps to the wanted epsilon or rho."""
    wanted = _wanted(column)
    if wanted is None:
        return column
    key, gamma, text = wanted
    try:
        retention = checked_retention(_largest(column, size, gamma))
    except ChannelError as error:
        hint = "give every value a replacement probability" if column.replacing else error.hint
        wrong(key, error.reason, hint)
        return column
    text = f"{text} over {size} values is retention {retention:.3g}"
    done = replace(column, retention=retention, conversion=text)
    return replace(done, wanted_epsilon=None, wanted_rho=None)


def states_strength(column: ColumnSpec) -> bool:
    """Whether a column says itself how strongly it is perturbed."""
    given = (column.retention, column.wanted_epsilon, column.wanted_rho)
    return column.mechanism not in SHARING or any(each is not None for each in given)


def own_epsilon(column: ColumnSpec) -> float | None:
    """The epsilon of a column that states its strength; None if the spec alone does not tell."""
    channel, fine = column.channel(), column.finegrain
    if channel is not None:
        return channel.epsilon
    if column.mechanism in ("identity", "swap", "decoy"):
        return math.inf
    pairs = [column.wanted_rho] if column.wanted_rho else []
    if fine is not None and fine.rho and fine.sides == "both":
        pairs = list(fine.rho)
    if pairs:
        return max(math.log(gamma_of_rho(*pair)) for pair in pairs)
    return column.wanted_epsilon


def _largest(column: ColumnSpec, size: int, gamma: float) -> float:
    """``gamma = 1 + p / ((1-p) q)``, solved for p; q is the rarest replacement."""
    rarest = min(column.replacing) if column.replacing else 1 / size
    return (gamma - 1) * rarest / (1 + (gamma - 1) * rarest)


def _limit_epsilon(column: ColumnSpec, wanted: ColumnSpec, wrong: Wrong) -> None:
    channel, asked = column.channel(), _wanted(wanted)
    key = "matrix" if column.mechanism == "matrix" else asked[0] if asked else "retention"
    if asked:
        epsilon = math.log(asked[1])
    elif channel is not None:
        epsilon = channel.epsilon
    else:  # not known before the data, or there is none
        epsilon = math.inf if column.retention == 1 else 0.0
    if epsilon > EPSILON_LIMIT + 1e-9:
        shown = "infinite" if epsilon == math.inf else f"{epsilon:.2f}"
        what = f"epsilon is {shown}: above {EPSILON_LIMIT:g} published values reveal originals"
        wrong(key, what, f"{_remedy(column, key)}, or accept it with accept_epsilon = true")


def _remedy(column: ColumnSpec, key: str) -> str:
    """What would bring epsilon down to the limit."""
    if key == "matrix":
        return f"within each column keep the ratio of entries to at most {GAMMA_LIMIT:.0f}"
    if key == "epsilon":
        return f"epsilon = {EPSILON_LIMIT:g} or less"
    if key == "rho":
        return f"choose rho so that rho2(1-rho1)/(rho1(1-rho2)) is at most {GAMMA_LIMIT:.0f}"
    if column.domain is None or column.mechanism in ("identity", "swap"):
        return "choose a retention below 1"
    largest = rounded_down(_largest(column, column.domain.size, GAMMA_LIMIT), 3)
    if not largest:
        return "give every value a replacement probability above 0"
    text = f"retention = {largest:g} or less would do for {column.domain.size} values"
    step = _coarser(column) if column.mechanism == "uniform" else None
    return f"{text}, {step} at this retention" if step else text


def rounded_down(number: float, digits: int) -> float:
    """As many digits that are not above the number."""
    if number <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(number)) + 1 - digits)
    return float(f"{math.floor(number / unit + 1e-9) * unit:.{digits}g}")


def _coarser(column: ColumnSpec) -> str | None:
    """The finest step of a grid whose epsilon is within the limit, None where none is.

    >>> _coarser(ColumnSpec("age", "sensitive", domain=Grid.of(0, 120), retention=0.6))
    'or step = 2'
    """
    domain, retention = column.domain, column.retention or 1.0
    if not isinstance(domain, Grid):
        return None
    most = math.floor((GAMMA_LIMIT - 1) * (1 - retention) / retention + 1e-9)
    intervals = most - 1 - domain.nullable  # as many steps as may be left
    if intervals < 1:
        return None
    now = domain.points - 1
    factor = -(-now // intervals)
    fitting = next((f for f in range(factor, min(4 * factor, factor + 10**5)) if now % f == 0), 0)
    step: object = domain.step * (fitting or factor)
    timed = isinstance(step, timedelta | Months)
    text = f"step = {quoted(step_text(step)) if timed else step}"  # type: ignore[arg-type]
    if fitting or domain.calendar:
        return f"or {text}"
    try:
        upper = domain.lower + domain.step * factor * -(-now // factor)  # type: ignore[operator]
    except OverflowError:  # after the year 9999
        return None
    return f"or {text} with upper = {upper}"

"""Advice from a guarantee: each advised number keeps it, and a little more does not."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from privsql.advise.curves import GRID, Curve, Point, search
from privsql.advise.formulas import (
    AdviseError,
    retention_for_groups,
    retention_for_s,
    rounded_down,
    smallest_group,
    split_epsilon,
)
from privsql.advise.job import advise
from privsql.audit.criteria.small_sums import small_sum_privacy
from privsql.audit.criteria.trials import group_cap
from privsql.channels import Replace, Uniform
from privsql.channels.channel import amplification
from privsql.errors import Error
from privsql.fronts.cli.commands.advise import advise as command
from privsql.fronts.cli.main import Commands
from tests import specs

SPEC = specs.spec(
    "patients",
    specs.public("city"),
    specs.sensitive("illness", 0.5, ["flu", "cold", "none"]),
    specs.sensitive("shoe size", 0.5, ["small", "large"], "replace", replacing=[0.2, 0.8]),
    specs.sensitive("pet", 0.5, ["cat", "dog", "none"], "swap"),
    specs.sensitive("seen", 0.5, "observed"),
)


def closed_form(retention: float, share: float, mass: float, rows: float) -> float:
    """95% half-width of a count with one condition, from the variance in ``curves``.

    ``share = n_1/n``, ``mass = b``.

    >>> round(closed_form(0.5, 0.2, 1 / 3, 4000), 1)
    97.8
    """
    p, b = retention, mass
    inside = share * (1 - b) * (p + (1 - p) * b) + (1 - share) * b * (1 - (1 - p) * b)
    return 1.959963984540054 * math.sqrt(rows * (1 - p) * inside) / p


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


def more(retention: float) -> float:
    """The next number that a spec could say."""
    return retention + 2 * 10.0 ** (math.floor(math.log10(retention)) - 3)


@pytest.mark.parametrize("size", [2, 3, 50])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
def test_an_epsilon_is_kept_and_used_up(size, epsilon):
    (column,) = advise(epsilon=epsilon, values=size).numbers["columns"]
    kept = column["retention"]
    assert math.log(amplification(Uniform(kept, size).matrix)) <= epsilon
    assert math.log(amplification(Uniform(more(kept), size).matrix)) > epsilon
    assert column["epsilon"] == pytest.approx(Uniform(kept, size).epsilon)


@pytest.mark.parametrize("how", ["equal", "retention"])
def test_the_epsilons_of_several_columns_add_up_to_the_total(how):
    sizes = [2, 3, 7]
    parts = split_epsilon(3.0, [(f"c{m}", 1 / m) for m in sizes], how)
    # All columns together are one channel, the Kronecker product.
    product = np.ones((1, 1))
    for part, m in zip(parts, sizes, strict=True):
        product = np.kron(product, Uniform(part.retention, m).matrix)
    total = math.log(amplification(product))
    assert 2.99 < total <= 3.0
    assert total == pytest.approx(sum(part.epsilon for part in parts))
    alike = {part.retention if how == "retention" else round(part.epsilon, 2) for part in parts}
    assert len(alike) == 1


def test_rho_is_kept_by_the_worst_posterior():
    (column,) = advise(rho=(0.1, 0.25), values=4).numbers["columns"]
    for retention, kept in ((column["retention"], True), (more(column["retention"]), False)):
        matrix = Uniform(retention, 4).matrix
        # A belief of .1 in value 0, the rest on value 1; value 0 is published.
        posterior = 0.1 * matrix[0, 0] / (0.1 * matrix[0, 0] + 0.9 * matrix[1, 0])
        assert bool(posterior <= 0.25) is kept


def test_s_is_the_paper_s_for_one_column():
    assert retention_for_s(67.999, 0.1, 0.95) == 0.2
    kept = retention_for_s(10, 0.2, 0.6)
    for retention, fine in ((kept, True), (more(kept), False)):
        limit = (0.6 - 0.2) * (1 - retention) / ((1 - 0.6) * retention)
        assert (limit > 10) is fine


@pytest.mark.parametrize("k", [1, 2, 3])
def test_s_holds_for_sets_of_every_shape(k):
    s, rho1, rho2 = 40.0, 0.1, 0.9
    kept = retention_for_s(s, rho1, rho2, k)

    def breached(p: float) -> bool:
        grid = np.geomspace(1e-4, 1, 30)
        for shape in itertools.combinations_with_replacement(grid, k):
            prior = s * math.prod(shape)
            if prior > rho1 * (1 + 1e-9):
                continue
            top = rho2 * (1 - rho1) * (1 - p) ** k
            if s >= top / ((1 - rho2) * math.prod((1 - p) * m + p for m in shape)):
                return True
        # The worst shape itself: all columns but one are left open.
        shape = (*[1.0] * (k - 1), rho1 / s)
        bottom = (1 - rho2) * math.prod((1 - p) * m + p for m in shape)
        return s >= rho2 * (1 - rho1) * (1 - p) ** k / bottom

    assert not breached(kept)
    assert breached(more(kept))


@pytest.mark.parametrize(("people", "size"), [(10, 2), (300, 3), (5000, 40)])
def test_a_group_of_so_many_people_needs_no_cut(people, size):
    kept = retention_for_groups(people, size, 0.3, 0.2)
    assert kept == 1 or group_cap(1.0, more(kept), size, 0.3, 0.2) < people
    assert group_cap(1.0, kept, size, 0.3, 0.2) >= people or kept == 1


def test_caps_and_their_exact_chances():
    found = advise(relative_error=0.3, probability=0.3, retention=0.5, values=2).numbers
    caps = {each["frequency"]: each for each in found["caps"]}
    assert caps[0.5]["rows"] == pytest.approx(214.04, abs=0.005)
    assert caps[1.0]["rows"] == pytest.approx(80.26, abs=0.005)
    rng = np.random.default_rng(1)
    seen = rng.binomial(107, 0.75, 200_000) + rng.binomial(107, 0.25, 200_000)
    estimate = (seen / 214 - 0.25) / 0.5
    within = (np.abs(estimate - 0.5) <= 0.15 + 1e-9).mean()
    assert caps[0.5]["within"] == pytest.approx(within, abs=0.002)


@pytest.mark.parametrize(
    ("wanted", "error", "alpha"), [(0.61, 0.3, 3), (0.45, 0.3, 5), (0.25, 0.5, 2), (0.4, 0.3, 3)]
)
def test_the_smallest_decoy_group(wanted, error, alpha):
    def slow(c: int) -> float:
        worst = 1.0
        for f in range(1, alpha + 1):
            inside = sum(
                math.comb(c * f, x) * (1 / c) ** x * (1 - 1 / c) ** (c * f - x)
                for x in range(c * f + 1)
                if abs(x - f) <= error * f + 1e-9
            )
            worst = min(worst, 1 - inside)
        return worst

    c = smallest_group(wanted, error, alpha)
    assert small_sum_privacy(c, error, alpha) == pytest.approx(slow(c))
    assert slow(c) >= wanted
    assert all(slow(less) < wanted for less in range(2, c))


def test_numbers_are_rounded_down():
    for number in (0.36416, 0.1, 0.99999, 1.0, 1e-7, 0.29999999999):
        assert number * 0.998 < rounded_down(number) <= number * (1 + 1e-12)


def test_a_spec_names_the_columns_and_the_rest_is_told(spec):
    found = advise(spec, epsilon=2.0, columns=["illness", "Shoe size"])
    assert '[columns."shoe size"]\nretention = ' in found.toml
    kept = {each["name"]: each["retention"] for each in found.numbers["columns"]}
    assert Replace(kept["shoe size"], [0.2, 0.8]).epsilon == pytest.approx(1, abs=0.001)
    text = str(found)
    assert "epsilon 1.999 in all, split equally" in text or "epsilon 2 in all" in text
    assert "pet without epsilon" in text
    assert found.to_dict()["epsilon_of_release"] is None
    json.dumps(found.to_dict(), allow_nan=False)


def test_an_epsilon_above_the_limit_needs_leave():
    found = advise(epsilon=6, values=3)
    assert "accept_epsilon = true" in found.toml
    assert found.warnings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "only one goal"),
        ({"epsilon": 1, "rho": (0.1, 0.2), "values": 3}, "only one goal"),
        ({"epsilon": 1}, "number of values"),
        ({"epsilon": 0, "values": 3}, "above 0"),
        ({"epsilon": math.nan, "values": 3}, "finite"),
        ({"epsilon": "one", "values": 3}, "number"),
        ({"epsilon": 1, "values": 1}, "single value"),
        ({"epsilon": 1, "values": 3, "split": "fair"}, "split"),
        ({"rho": (0.5, 0.1), "values": 3}, "rho1 < rho2"),
        ({"rho": (0.5,), "values": 3}, "2 numbers"),
        ({"s": (0, 0.1, 0.2), "values": 3}, "above 0"),
        ({"relative_error": 0.3, "values": 3}, "go together"),
        ({"relative_error": 0.3, "probability": 0.3, "values": 3}, "retention"),
        ({"relative_error": 1.3, "probability": 0.3, "values": 3}, "between 0 and 1"),
        ({"relative_error": 0.3, "probability": 0.3, "values": 3, "people": 0}, "at least 1"),
        ({"small_sum": 0.9}, "no decoy group"),
        ({"small_sum": 0.5, "alpha": 0}, "alpha"),
        ({"small_sum": 0.5, "error": 2.0}, "between 0 and 1"),
        ({"queries": {"SELECT 1": 3.0}}, "data"),
        ({"epsilon": 1, "columns": "illness"}, "no spec"),
    ],
)
def test_what_cannot_be_advised_is_refused(options, words):
    with pytest.raises(Error, match=words) as problem:
        advise(**options)
    assert problem.value.hint or words in problem.value.reason


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 1, "columns": "pet"}, "pet is swap"),
        ({"epsilon": 1, "columns": "city"}, "city is public"),
        ({"epsilon": 1, "columns": "seen"}, "observed"),
        ({"epsilon": 1, "columns": "ilness"}, "no column"),
        ({"epsilon": 1, "columns": "illness", "values": 3}, "spec gives"),
        ({"small_sum": 0.6, "columns": "illness"}, "illness has 3"),
        ({"small_sum": 0.6}, "one column"),
        ({"relative_error": 0.3, "probability": 0.3}, "pet is swap"),
    ],
)
def test_what_a_spec_cannot_be_advised_on(spec, options, words):
    with pytest.raises(Error, match=words):
        advise(spec, **options)


# -- the curve, without data ---------------------------------------------------------------


def test_the_closed_form_is_what_perturbing_gives():
    n, share, mass, p = 1500, 0.7, 0.3, 0.4
    rng = np.random.default_rng(2)
    yes = int(n * share)
    seen = rng.binomial(yes, p + (1 - p) * mass, 40_000)
    seen = seen + rng.binomial(n - yes, (1 - p) * mass, 40_000)
    estimate = (seen - (1 - p) * mass * n) / p
    assert closed_form(p, share, mass, n) == pytest.approx(1.96 * estimate.std(), rel=0.02)


def noisy(width, seed, noise=0.04):
    rng = np.random.default_rng(seed)
    asked = []

    def pilot(retention, draws):
        asked.append(retention)
        return [float(width(retention) * math.exp(noise * rng.standard_normal() / draws**0.5))]

    return pilot, asked


@pytest.mark.parametrize("conditions", [1, 2, 4])
@pytest.mark.parametrize("answer", [0.03, 0.17, 0.6])
def test_the_search_finds_the_smallest_retention(conditions, answer):
    def width(p):
        u = (1 - p) / p
        return math.sqrt(u * (0.3 + u) * (1 + u) ** (2 * conditions - 2))

    pilot, asked = noisy(width, seed=5)
    found = search(pilot, [width(answer)], top=0.9)
    assert width(found.retention) == pytest.approx(width(answer), rel=0.09)
    assert found.widths[0] == pytest.approx(width(found.retention), rel=0.09)
    assert len(asked) <= 16


def test_the_binding_query_decides():
    def pilot(retention, draws):
        return [closed_form(retention, 0.1, 0.2, 1e4), closed_form(retention, 0.5, 0.5, 1e6)]

    narrow = closed_form(0.3, 0.5, 0.5, 1e6)
    found = search(pilot, [1e9, narrow], top=0.9)
    assert found.retention == pytest.approx(0.3, rel=0.02)
    assert found.widths[1] <= narrow * 1.001


def test_a_width_that_nothing_gives_is_refused():
    pilot, asked = noisy(lambda p: closed_form(p, 0.1, 0.2, 1e4), 1)
    with pytest.raises(AdviseError, match=r"query 1 cannot have ± 1: at retention 0.5") as problem:
        search(pilot, [1.0], top=0.5)
    assert asked == [0.5]
    assert "ask for" in problem.value.hint
    with pytest.raises(AdviseError, match="without a reliable interval"):
        search(lambda p, draws: [math.inf], [1.0], top=0.5)


def test_a_width_that_everything_gives_takes_the_smallest_retention_tried():
    pilot, asked = noisy(lambda p: closed_form(p, 0.1, 0.2, 1e4), 1)
    found = search(pilot, [1e9], top=0.9)
    assert found.lowest
    assert found.retention == min(asked) == 0.005


def test_retentions_without_an_interval_are_not_advised():
    def pilot(retention, draws):
        return [closed_form(retention, 0.1, 0.2, 1e4) if retention > 0.3 else math.inf]

    found = search(pilot, [1e9], top=0.9)
    assert 0.3 < found.retention < 0.33
    assert math.isfinite(found.widths[0])


def test_a_curve_reads_between_its_pilots():
    curve = Curve(())
    for p in GRID:
        curve = curve.with_point(Point(p, (closed_form(p, 0.3, 0.1, 1e5),), 1))
    for p in np.geomspace(0.05, 0.9, 40):
        assert curve.width(0, p) == pytest.approx(closed_form(p, 0.3, 0.1, 1e5), rel=0.03)
    assert curve.width(0, 0.01) == math.inf


# -- the command --------------------------------------------------------------------------


def run(*arguments):
    main = Commands("privsql", context_settings={"help_option_names": ["-h", "--help"]})
    main.add_command(command)
    return CliRunner().invoke(main, ["advise", *map(str, arguments)])


def test_the_command_prints_what_to_write():
    done = run("--epsilon", 1, "--values", 3)
    assert done.exit_code == 0
    assert "    retention = 0.3641  # epsilon 0.9998\n" in done.output
    done = run("--rho", 0.1, 0.25, "--values", 4, "--json")
    assert json.loads(done.output)["columns"][0]["retention"] == 0.3333
    done = run("--s", 67.999, 0.1, 0.95, "--values", 3)
    assert "retention = 0.2 " in done.output
    done = run("--small-sum", 0.612)
    assert "group_size = 10" in done.output
    done = run("--lambda", 0.3, "--delta", 0.3, "--people", 80.26, "--values", 2)
    assert "retention = 0.5 " in done.output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "no goal is given"),
        (["--epsilon", "1", "--small-sum", "0.5"], 2, "are several goals"),
        (["--lambda", "0.3"], 2, "go together"),
        (["--people", "3", "--epsilon", "1"], 2, "--people"),
        (["--query", "SELECT 1"], 2, "0 widths"),
        (
            ["--query", "a", "--query", "b", "--query", "c", "--width", "1", "--width", "2"],
            2,
            "2 w",
        ),
        (["--epsilon", "1", "--values", "3", "--plot", "a.png"], 2, "--plot"),
        (["a.toml", "--spec", "b.toml", "--epsilon", "1"], 2, "twice"),
        (["--epsilon", "much"], 2, "not a valid float"),
        (["--epsilon", "1"], 1, "HINT: give --values"),
        (["nowhere.toml", "--epsilon", "1"], 1, "cannot be read"),
        (["--query", "SELECT 1", "--width", "1"], 1, "HINT: give the spec"),
        (["nowhere.toml", "--query", "SELECT 1", "--width", "1", "--plot", "a.txt"], 1, "picture"),
    ],
)
def test_what_the_command_refuses(arguments, code, words):
    done = run(*arguments)
    assert done.exit_code == code
    assert words in done.output
    assert "Traceback" not in done.output


def test_the_help_has_examples():
    done = run("-h")
    assert done.exit_code == 0
    assert "privsql advise clinic.toml --lambda 0.3 --delta 0.3" in done.output

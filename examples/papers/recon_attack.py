"""What the SPS algorithm of Reconstruction Privacy gives away, and what its numbers mean.

A group of |g| rows has s_g trials, each copied |g|/s_g times.  Copies come in lumps of
floor(|g|/s_g) or one more, so the lumps tell s_g, and s_g tells f (eq. 10 solved for f).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from formulas import exact_tail
from numpy.typing import NDArray
from recon_data import SELECTIVITY, Array, Case, Codes
from recon_runs import DEFAULT, Drawn, Setting, Way, draw

from privsql.audit.criteria.trials import group_cap

# Frequencies are tried in steps of this.
STEP = 0.02
# A lump that a candidate does not allow: the published size is not exactly |g|.
UNLIKELY = -30.0
Candidates = list[tuple[float, int, float]]  # f, its trials, its share among published values
# An estimate this close to f counts as found.
CLOSE = 0.05


@dataclass(frozen=True)
class Found:
    """Share of the cut groups whose f an attacker finds within 5%."""

    ordered: float  # from the order of the rows, sorted as in the paper
    shuffled: float  # from counts alone
    honest: float  # by reconstruction, as anybody may


def attack(case: Case, setting: Setting, seed: int) -> Found:
    """Attack one SPS publication in all three ways."""
    drawn = draw(case, setting, "SPS", seed)
    limits = group_cap(case.frequencies, setting.retention, case.size, *setting.wanted)
    cut = np.flatnonzero(case.counts.sum(axis=1) > limits)
    p, m = setting.retention, case.size
    f = np.exp(np.arange(math.log(1 / m), 0, STEP))
    trials = np.rint(group_cap(f, p, m, *setting.wanted)).astype(int)
    candidates = list(zip(f.tolist(), trials.tolist(), (f * p + (1 - p) / m).tolist(), strict=True))
    guesses = np.array([_guess(case, drawn, int(group), candidates) for group in cut])
    shares = drawn.estimates[cut] / drawn.estimates[cut].sum(axis=1, keepdims=True)
    honest = np.clip(shares.max(axis=1), 1 / case.size, 1)
    truth = case.frequencies[cut]
    hits = np.abs(np.column_stack([guesses, honest]) / truth[:, None] - 1) < CLOSE
    return Found(*hits.mean(axis=0).tolist())


def _guess(case: Case, drawn: Drawn, group: int, candidates: Candidates) -> tuple[float, float]:
    """The likeliest f of one group, from ordered rows and from counts."""
    rows = drawn.rows[case.groups[drawn.rows] == group]
    # The paper's order: by public values, then by the sensitive one; copies side by side.
    seen = drawn.published[rows[np.argsort(case.sensitive[rows], kind="stable")]]
    runs = np.diff(np.flatnonzero(np.diff(seen, prepend=-1, append=-1)))
    counts = np.sort(np.bincount(seen))[::-1]
    counts = counts[counts > 0]
    best, found = [-math.inf, -math.inf], [1.0, 1.0]
    for f, trials, share in candidates:
        if trials >= len(seen):
            continue
        shares = counts / len(seen)
        shares[0] = share  # the commonest value: f tells its share among published ones
        major = round(counts[0] * trials / len(seen))
        one = np.array([major]), np.array([trials])
        ordered = _likelihood(runs, len(seen), trials, None) + _binomial(*one, share)[0]
        if len(counts) == 2:
            shuffled = _two_counts(counts, trials, share)
        else:
            shuffled = _likelihood(counts, len(seen), trials, shares)
        for way, likely in enumerate((ordered, shuffled)):
            if likely > best[way]:
                best[way], found[way] = likely, f
    return found[0], found[1]


def _likelihood(lumps: Codes, rows: int, trials: int, shares: Array | None) -> float:
    """Log-likelihood that lumps of copies come from so many trials.

    A lump of L copies holds k trials with ``k lo <= L <= k (lo+1)``, lo = floor(rows/trials):
    L - k lo ~ Binomial(k, fraction).  A run of equal values holds k with a geometric chance
    (``shares`` None), the count of a value with a binomial one.
    """
    lo, fraction = divmod(rows / trials, 1)
    low = int(lo)
    fraction = min(max(fraction, 1e-6), 1 - 1e-6)
    again = min(max(1 - len(lumps) / trials, 1e-6), 1 - 1e-6)
    times = np.ones(len(lumps), dtype=np.int64)
    if shares is None:
        lumps, times = np.unique(lumps, return_counts=True)
    first, last = -(-lumps // (low + 1)), np.minimum(lumps // low, trials)
    wide = np.maximum(last - first + 1, 0)
    lump = np.repeat(np.arange(len(lumps)), wide)
    k = np.arange(len(lump)) - np.repeat(np.cumsum(wide) - wide, wide) + first[lump]
    chance = _binomial(lumps[lump] - k * low, k, fraction)
    if shares is None:
        chance = chance + math.log1p(-again) + (k - 1) * math.log(again)
    else:
        chance = chance + _binomial(k, np.full_like(k, trials), shares[lump])
    total = np.bincount(lump, np.exp(chance), minlength=len(lumps))
    each = np.maximum(np.log(np.maximum(total, 1e-300)), UNLIKELY)
    return float(times @ each)


def _two_counts(counts: Codes, trials: int, share: float) -> float:
    """Log-likelihood of two counts, whose trials k and n - k are one number."""
    lo, fraction = divmod(counts.sum() / trials, 1)
    fraction = min(max(fraction, 1e-6), 1 - 1e-6)
    k = np.arange(1, trials)
    extra = counts[0] - k * int(lo), counts[1] - (trials - k) * int(lo)
    fits = (extra[0] >= 0) & (extra[0] <= k) & (extra[1] >= 0) & (extra[1] <= trials - k)
    if not fits.any():
        return -math.inf
    k, first, second = k[fits], extra[0][fits], extra[1][fits]
    chance = _binomial(k, np.full_like(k, trials), share) + _binomial(first, k, fraction)
    return float(np.logaddexp.reduce(chance + _binomial(second, trials - k, fraction)))


def _binomial(k: Codes, n: Codes, chance: float | Array) -> Array:
    """Log of the binomial chance."""
    from scipy.special import gammaln

    share = np.clip(chance, 1e-9, 1 - 1e-9)
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(ways + k * np.log(share) + (n - k) * np.log1p(-share))


def within(f: Array, setting: Setting, size: int) -> Array:
    """Exact chance that the estimate of f is within lambda f in a group of s_g rows."""
    limits = group_cap(f, setting.retention, size, *setting.wanted)
    return np.array(
        [
            exact_tail(int(rows), share, setting.retention, size, setting.relative_error).within
            for share, rows in zip(f, limits, strict=True)
        ]
    )


@dataclass(frozen=True)
class Cuts:
    """What looking at part of a personal group gives."""

    whole: int  # groups with more trials than their s (and one, for rounding)
    parts: int  # parts of groups that have more trials than their own s, their groups having not
    looked: int  # parts looked at
    merged: float  # mean relative error of the rows of a merged public value
    original: float  # of an original one


def cut_finer(case: Case, way: Way, seed: int) -> Cuts:
    """Hold parts of groups, one or more original public values fixed, against their own s.

    A release that keeps original values lets everybody look at such parts, whose f may be
    larger than that of the group.  (reconstruction, 9.15)
    """
    drawn = draw(case, DEFAULT, way, seed)
    tables = [_violating(case, drawn, ())]
    bad = tables[0][1][case.groups]
    parts = looked = 0
    for size in range(1, len(case.columns) + 1):
        for columns in combinations(range(len(case.columns)), size):
            key, over = _violating(case, drawn, columns)
            parts += len(np.unique(key[over[key] & ~bad]))
            looked += len(over)
    labels = [label[code] for label, code in zip(case.merged.labels, case.public, strict=True)]
    errors = [
        np.mean([_public_errors(code, drawn) for code in codes]) for codes in (labels, case.public)
    ]
    return Cuts(int(tables[0][1].sum()), parts, looked, float(errors[0]), float(errors[1]))


def _violating(
    case: Case, drawn: Drawn, columns: tuple[int, ...]
) -> tuple[Codes, NDArray[np.bool_]]:
    """Parts of groups by some original columns: the part of each row, and which violate."""
    key = case.groups
    for column in columns:
        key = np.unique(key * len(case.values[column]) + case.public[column], return_inverse=True)[
            1
        ]
    rows = np.bincount(key)
    flat = np.bincount(key * case.size + case.sensitive, minlength=len(rows) * case.size)
    f = flat.reshape(-1, case.size).max(axis=1) / rows
    trials = np.bincount(key[np.unique(drawn.rows)], minlength=len(rows))
    return key, trials > group_cap(f, DEFAULT.retention, case.size, *DEFAULT.wanted) + 1


def _public_errors(code: Codes, drawn: Drawn) -> float:
    """Mean relative error of public counts, over values with 0.1% of the rows or more."""
    truth = np.bincount(code)
    seen = np.bincount(code[drawn.rows], drawn.weights, minlength=len(truth))
    large = truth >= SELECTIVITY * len(code)
    return float(np.abs(seen[large] / truth[large] - 1).mean())

"""Naive Bayes against counts made by hand."""

from __future__ import annotations

import numpy as np
import pytest

import privsql
from privsql.learn import NaiveBayes
from privsql.learn.bayes import shrunk
from tests.learn.made import DOMAINS, people, release
from tests.learn.slow import cut_points

STATES = DOMAINS["state"]


def by_hand(prior, tables, rows):
    """Posteriors, one row and one feature at a time: tables are {value: count per class}."""
    found = []
    for row in rows:
        weight = [max(n, 0) + 1 for n in prior]
        for value, table in zip(row, tables, strict=True):
            for k in range(len(weight)):
                total = sum(max(counts[k], 0) + 1 for counts in table.values())
                weight[k] *= (max(table[value][k], 0) + 1) / total
        found.append([w / sum(weight) for w in weight])
    return np.array(found)


def counted(values, states):
    return {
        value: [sum(v == value and s == k for v, s in zip(values, states, strict=True))
                for k in STATES]
        for value in sorted(set(values))
    }  # fmt: skip


def test_without_perturbation_it_counts_rows(tmp_path):
    columns = people(2000)
    path = release(tmp_path, columns, sensitive=DOMAINS, retention=1)
    model = NaiveBayes(cuts=4).fit(path, target="state", features=["job", "city", "age"])
    ages, states = columns["age"].tolist(), columns["state"].tolist()
    cuts = cut_points(ages, 4)
    bucket = [sum(age > cut for cut in cuts) for age in ages]
    lists = [columns["job"].tolist(), columns["city"].tolist(), bucket]
    tables = [counted(values, states) for values in lists]
    prior = [states.count(k) for k in STATES]
    rows = list(zip(*lists, strict=True))[:300]
    expected = by_hand(prior, tables, rows)
    first = {name: column[:300] for name, column in columns.items()}
    assert model.predict_proba(first) == pytest.approx(expected, rel=1e-9)
    assert list(model.predict(first)) == [STATES[i] for i in expected.argmax(axis=1)]
    assert list(model.classes_) == STATES


def test_counts_are_reconstructed(tmp_path):
    """Against the published rows inverted by matrices."""
    columns = people(3000)
    path = release(tmp_path, columns, sensitive=DOMAINS, retention=0.4)
    with privsql.connect(path) as con:
        model = NaiveBayes(shrink=False).fit(con, target="state", features=["job", "city"])
        published = con.sql("SELECT job, city, state FROM people").fetchall()
    inverse = np.linalg.inv(0.4 * np.eye(3) + 0.6 / 3)
    jobs, cities = DOMAINS["job"], ["north", "south", "west"]
    y_job, y_city = np.zeros((3, 3)), np.zeros((3, 3))
    for job, city, state in published:
        y_job[jobs.index(job), STATES.index(state)] += 1
        y_city[cities.index(city), STATES.index(state)] += 1
    x_job, x_city = inverse.T @ y_job @ inverse, y_city @ inverse
    assert (x_job < 0).any() or x_job.min() < 100  # noise is there
    tables = [
        {job: x_job[i].tolist() for i, job in enumerate(jobs)},
        {city: x_city[i].tolist() for i, city in enumerate(cities)},
    ]
    rows = [(job, city) for job in jobs for city in cities]
    expected = by_hand((y_city.sum(axis=0) @ inverse).tolist(), tables, rows)
    given = {"job": [job for job, _ in rows], "city": [city for _, city in rows]}
    assert model.predict_proba(given) == pytest.approx(expected, rel=1e-6)


def test_it_finds_what_is_there(tmp_path):
    path = release(tmp_path, people(40_000), sensitive=DOMAINS, retention=0.5)
    fresh = people(5000, seed=77)
    guess = float(np.mean(fresh["state"] == "well"))
    for estimator in ("inversion", "iterative"):
        model = NaiveBayes(estimator=estimator, cuts=4).fit(path, target="state")
        assert model.score(fresh) > guess + 0.03


def test_what_is_not_told_tells_nothing(tmp_path):
    """A public column alone makes personal groups of its values: each cell is refused."""
    columns = people(3000)
    policy = 'personal_groups = "refuse"\nmin_rows = 10'
    path = release(tmp_path, columns, sensitive=DOMAINS, policy=policy)
    model = NaiveBayes().fit(path, target="state", features=["city", "job"])
    assert model.likelihoods_[0].silent == 3
    alone = NaiveBayes().fit(path, target="state", features=["job"])
    first = {name: column[:20] for name, column in columns.items()}
    assert model.predict_proba(first) == pytest.approx(alone.predict_proba(first))
    # Nor does a value that the release has never heard of.
    strange = {"city": ["north"], "job": ["z"]}
    prior = np.exp(model.class_log_prior_)
    assert model.predict_proba(strange)[0] == pytest.approx(prior)


def test_shrinking_brings_counts_nearer_to_the_truth():
    """Where errors are as large as what a feature tells; and where it tells nothing, to nothing."""
    rng = np.random.default_rng(3)
    shares = rng.dirichlet(np.ones(12), 40)  # of the cells, for each of two classes
    other = 0.7 * shares + 0.3 * rng.dirichlet(np.ones(12), 40)
    errors = np.full((2, 12), 120.0)
    plain = drawn = 0.0
    for first, second in zip(shares, other, strict=True):
        truth = np.array([4000 * first, 1500 * second])
        seen = truth + rng.normal(0, errors)
        ratio = np.clip(truth, 1, None)
        plain += float((((seen - truth) / ratio) ** 2).mean())
        drawn += float((((shrunk(seen, errors) - truth) / ratio) ** 2).mean())
    assert drawn < 0.5 * plain
    alike = np.array([4000 * shares[0], 1500 * shares[0]])
    told = shrunk(alike + rng.normal(0, errors), 3 * errors)
    assert told[0] / told[0].sum() == pytest.approx(told[1] / told[1].sum())

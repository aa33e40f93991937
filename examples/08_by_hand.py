"""From a raw table to a reconstructed count, step by step.

Nobody's row can be trusted in the published table, and yet the counts come back, each with
its error bar.  What privsql does for a query is done here by hand, with the kernels.  Run it
with ``python examples/08_by_hand.py``.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

from privsql.channels import Categorical, Cells, Channel, Grid, Interval, Uniform
from udfs.register import register

ROWS = 200_000


def raw_table(rng: np.random.Generator) -> pa.Table:
    """Patients whose disease depends on their age, as in reality."""
    age = np.clip(rng.gamma(6.0, 8.0, ROWS), 0, 99).astype(int)
    chance_of_flu = 0.05 + 0.25 * (age > 60)
    draw = rng.random(ROWS)
    disease = np.where(draw < chance_of_flu, "flu", np.where(draw < 0.4, "cold", "none"))
    city = rng.choice(["north", "south"], ROWS, p=[0.4, 0.6])
    return pa.table({"city": city, "age": age, "disease": disease})


def perturb(rng: np.random.Generator, codes: np.ndarray, channel: Uniform) -> np.ndarray:
    """Keep each value with the retention's chance, otherwise draw a random one."""
    kept = rng.random(len(codes)) < channel.retention
    return np.where(kept, codes, rng.integers(channel.size, size=len(codes)))


def two_cells(channel: Channel, satisfied: np.ndarray) -> list[list[float]]:
    """Transition matrix between "the condition fails" and "the condition holds"."""
    cells = Cells.of(satisfied)
    matrix = channel.lump(cells).matrix
    # Cells are numbered as the domain enters them; ours go from fails to holds.
    order = [0, 1] if not satisfied[0] else [1, 0]
    return matrix[np.ix_(order, order)].tolist()


def main() -> None:
    rng = np.random.default_rng(2026)  # a fixed seed is for a demo, never for a release
    raw = raw_table(rng)

    print("1. Public rules: domains, and how much of each value is kept")
    diseases, ages = Categorical(("cold", "flu", "none")), Grid.of(0, 99)
    keep_disease, keep_age = Uniform(0.3, diseases.size), Uniform(0.4, ages.size)
    print(f"   disease: {keep_disease}, epsilon {keep_disease.epsilon:.2f}")
    print(f"   age:     {keep_age}, epsilon {keep_age.epsilon:.2f}")

    published = pa.table(
        {
            "city": raw["city"],
            "age": ages.decode(perturb(rng, ages.codes(raw["age"]), keep_age)),
            "disease": diseases.decode(perturb(rng, diseases.codes(raw["disease"]), keep_disease)),
        }
    )

    with duckdb.connect() as con:
        register(con)
        con.register("raw", raw)
        con.register("published", published)
        changed = con.execute(
            "SELECT avg((r.disease <> p.disease OR r.age <> p.age)::INT)"
            " FROM raw r POSITIONAL JOIN published p"
        ).fetchone()[0]
        print(f"\n2. Published: {changed:.0%} of the rows differ from the truth\n")

        flu = np.array([value == "flu" for value in ("cold", "flu", "none")])
        old = np.arange(100) > 60
        print(f"3. age > 60 holds for {ages.mass(Interval.above(60)):.0%} of random ages;")
        factors = [two_cells(keep_disease, flu), two_cells(keep_age, old)]
        print("   how published states follow from original ones (disease, then age):")
        for factor in factors:
            print("   ", [[round(x, 3) for x in row] for row in factor])

        print(
            "\n4. SELECT city, COUNT(*) FROM patients"
            " WHERE disease = 'flu' AND age > 60 GROUP BY city"
        )
        rows = con.execute(
            """
            WITH states AS (  -- one scan: how many published rows are in each state
                SELECT city, disease = 'flu' AS p1, age > 60 AS p2, count(*) AS n
                FROM published GROUP BY ALL
            ), vectors AS (
                SELECT city, list(n::DOUBLE ORDER BY p1, p2) AS y FROM states GROUP BY city
            ), answers AS (
                SELECT city, y[4] AS naive, privsql_estimate(y, [0, 0, 0, 1], $factors) AS n,
                       privsql_variance(y, y, [0, 0, 0, 1], $factors) AS v,
                       privsql_effective_rows(y, y, [0, 0, 0, 1], $factors) AS rows
                FROM vectors
            ), truth AS (
                SELECT city, count(*) AS n FROM raw WHERE disease = 'flu' AND age > 60 GROUP BY city
            )
            SELECT city, truth.n, naive, a.n, i.low, i.high FROM answers a
            JOIN truth USING (city),
            LATERAL (SELECT privsql_wald_interval(a.n, v, rows, privsql_critical(0.95, 1)) AS i)
            ORDER BY city
            """,
            {"factors": factors},
        ).fetchall()
        print(f"   {'city':<8}{'truth':>8}{'published':>11}{'reconstructed':>15}   95% interval")
        for city, truth, naive, estimate, low, high in rows:
            print(
                f"   {city:<8}{truth:>8}{naive:>11.0f}{estimate:>15.0f}   [{low:.0f}, {high:.0f}]"
            )


if __name__ == "__main__":
    main()

"""The tables of the tutorials: ``python examples/data/make.py``.

survey.csv and learn.csv are samples without replacement of the Adult data set (B. Becker and
R. Kohavi, UCI Machine Learning Repository, https://doi.org/10.24432/C5XW20, CC BY 4.0), from the
counts in tests/census; the number of the respondent is ours.  hospital.csv and panel.csv are
invented: nobody's data.  One seed each, so that the files are the same every time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from privsql.fronts.demo.recipe import clinic  # noqa: E402
from tests.census import GROUPS, MARRIAGES, rows  # noqa: E402

POSTCODES = {"centre": 20, "east": 22, "harbour": 25, "hills": 31, "west": 34}
WAVES = (2022, 2023, 2024, 2025)


def survey(rng: np.random.Generator) -> pa.Table:
    """Six thousand people who were asked for education, occupation and income."""
    found = rows(GROUPS)
    found = found.take(pa.array(chosen(found.num_rows, 6_000, rng)))
    return found.add_column(0, "respondent", pa.array(1000 + np.arange(found.num_rows)))


def learn(rng: np.random.Generator) -> pa.Table:
    """Ten thousand people: years of education, marital status, income."""
    found = rows(MARRIAGES)
    return found.take(pa.array(chosen(found.num_rows, 10_000, rng)))


def hospital(rng: np.random.Generator) -> pa.Table:
    """Five thousand stays of as many patients."""
    found = clinic(5_000, rng).to_pydict()
    count = len(found["sex"])
    born = [
        2024 - age - int(10 * u) for age, u in zip(found["age"], rng.random(count), strict=True)
    ]
    days = np.floor(365 * rng.random(count)).astype(int)
    dates = [
        np.datetime64(f"{year}-01-01") + int(day) for year, day in zip(born, days, strict=True)
    ]
    ends = np.floor(100 * rng.random(count)).astype(int)
    codes = [f"{POSTCODES[d]}{end:03d}" for d, end in zip(found["district"], ends, strict=True)]
    return pa.table(
        {
            "patient_no": pa.array(730_000 + chosen(90_000, count, rng)),
            "born": pa.array(np.array(dates, dtype="datetime64[D]")),
            "postcode": codes,
            "sex": found["sex"],
            "admitted": found["visited"],
            "smoker": found["smoker"],
            "diagnosis": found["disease"],
            "cost": found["cost"],
        }
    )


def panel(rng: np.random.Generator) -> pa.Table:
    """Two thousand people who were asked every year, most of them four times."""
    people = 2_000
    region = np.array(["north", "south", "west"])[np.floor(3 * rng.random(people)).astype(int)]
    sex = np.array(["F", "M"])[(rng.random(people) < 0.5).astype(int)]
    working = rng.random(people) < 0.8
    mood = rng.random(people)
    found: dict[str, list[object]] = {
        name: [] for name in ("person", "year", "region", "sex", "work", "satisfaction")
    }
    for year in WAVES:
        changes = rng.random(people) < 0.1
        working = np.where(changes, ~working, working)
        answers = rng.random(people) < 0.9
        score = np.floor(
            11 * np.clip(0.5 * mood + 0.3 * rng.random(people) + 0.2 * working, 0, 0.999)
        )
        for i in np.flatnonzero(answers):
            found["person"].append(50_000 + 7 * int(i))
            found["year"].append(year)
            found["region"].append(str(region[i]))
            found["sex"].append(str(sex[i]))
            found["work"].append("employed" if working[i] else "unemployed")
            found["satisfaction"].append(int(score[i]))
    return pa.table(found)


def chosen(count: int, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """So many different numbers below ``count``; all versions of numpy have the same ``random``."""
    return np.argsort(rng.random(count), kind="stable")[:wanted]


TABLES = {"survey": survey, "learn": learn, "hospital": hospital, "panel": panel}


def text(name: str) -> bytes:
    """One of the files."""
    made = pa.BufferOutputStream()
    table = TABLES[name](np.random.default_rng(16))
    header = ",".join(table.column_names) + "\n"
    pc.write_csv(table, made, pc.WriteOptions(include_header=False, quoting_style="none"))
    return header.encode() + made.getvalue().to_pybytes()


if __name__ == "__main__":
    for name in TABLES:
        Path(__file__).with_name(f"{name}.csv").write_bytes(text(name))

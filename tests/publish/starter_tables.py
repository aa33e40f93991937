"""Twelve tables for `init`, each with what a careful publisher would say of its columns.

They were written before the classifier and are not to be changed to please it.  Two of them hold
rows of the census table of the papers (``tests.census``); the others are drawn from a seed.

    identifying   never in the clear, whatever happens
    known         others may know it of a person: may be published, coarse enough
    sensitive     never in the clear either; perturbed, dropped, or left to the publisher

Columns that are in none of the three may have any role.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tests import census

Rng = np.random.Generator


@dataclass(frozen=True)
class Sample:
    """A table with the roles that its columns really have."""

    rows: pa.Table
    identifying: tuple[str, ...]
    known: tuple[str, ...]
    sensitive: tuple[str, ...]
    unit: str | None = None  # a column that names the person, where persons have several rows


def _days(rng: Rng, first: str, days: int, count: int) -> list[dt.date]:
    start = dt.date.fromisoformat(first)
    return [start + dt.timedelta(days=int(day)) for day in rng.integers(0, days, count)]


def _words(rng: Rng, count: int, syllables: int = 3) -> list[str]:
    """Made-up words, such as names are."""
    parts = np.array([a + b for a in "bdfklmnprstv" for b in "aeiou"])
    return ["".join(each).capitalize() for each in rng.choice(parts, (count, syllables))]


def _check_digit(digits: str) -> str:
    """The last digit of a code, weighted modulo 11."""
    rest = sum(int(digit) * weight for weight, digit in enumerate(digits, 2)) % 11
    return "X" if rest == 10 else str(rest)


def _text(values: np.ndarray, names: list[str]) -> list[str]:
    return np.array(names)[values].tolist()


def hospital(rng: Rng) -> Sample:
    """A number that identifies, ISO birth dates, postcodes: the table of the issue."""
    n = 3_000
    ill = ["flu", "asthma", "diabetes", "hiv", "fracture", "none", "rare a", "rare b"]
    chances = [0.3, 0.2, 0.15, 0.05, 0.1, 0.197, 0.002, 0.001]
    return Sample(
        pa.table(
            {
                "patient_no": rng.permutation(np.arange(700_000, 700_000 + n)),
                "birth_date": _days(rng, "1930-01-01", 27_000, n),
                "postcode": [f"{zone:05d}" for zone in rng.integers(10_000, 14_000, n)],
                "sex": rng.choice(["F", "M"], n),
                "ward": rng.choice(["north", "south", "children", "surgery"], n),
                "diagnosis": rng.choice(ill, n, p=np.array(chances) / sum(chances)),
                "cost": np.round(rng.lognormal(7, 0.8, n), 2),
            }
        ),
        identifying=("patient_no",),
        known=("birth_date", "postcode", "sex", "ward"),
        sensitive=("diagnosis", "cost"),
    )


def insurance(rng: Rng) -> Sample:
    """A code with a check digit under a name that says little."""
    n = 2_000
    digits = [f"{number:09d}" for number in rng.choice(10**9, n, replace=False)]
    return Sample(
        pa.table(
            {
                "ref": [each + _check_digit(each) for each in digits],
                "age": rng.integers(18, 95, n),
                "state": rng.choice([f"state {i}" for i in range(16)], n),
                "plan": rng.choice(["basic", "plus", "full"], n),
                "smoker": rng.choice(["yes", "no"], n, p=[0.2, 0.8]),
                "claim_amount": rng.integers(0, 40_000, n) * 5,
                "premium": np.round(rng.normal(300, 60, n), 2),
            }
        ),
        identifying=("ref",),
        known=("age", "state", "plan"),
        sensitive=("smoker", "claim_amount", "premium"),
    )


def panel(rng: Rng) -> Sample:
    """Three or four rows a person."""
    people = 1_200
    rows = rng.integers(3, 5, people)
    who = np.repeat(np.arange(people), rows)
    n = len(who)
    wave = np.concatenate([np.arange(1, many + 1) for many in rows])
    born = rng.integers(1940, 2004, people)
    region = rng.choice(["north", "east", "south", "west", "capital"], people)
    return Sample(
        pa.table(
            {
                "pid": rng.permutation(9_000)[who] + 10_000,
                "wave": wave,
                "birth_year": born[who],
                "region": region[who],
                "sex": rng.choice(["female", "male"], people)[who],
                "income": np.round(rng.lognormal(10, 0.5, n), -1),
                "life_satisfaction": rng.integers(0, 11, n),
            }
        ),
        identifying=("pid",),
        known=("wave", "birth_year", "region", "sex"),
        sensitive=("income", "life_satisfaction"),
        unit="pid",
    )


def visits(rng: Rng) -> Sample:
    """ISO dates and times."""
    n = 2_500
    start = dt.datetime(2024, 1, 1)
    times = [start + dt.timedelta(minutes=int(m)) for m in rng.integers(0, 525_600, n)]
    return Sample(
        pa.table(
            {
                "visit_id": [f"V{i:07d}" for i in rng.permutation(n)],
                "dob": _days(rng, "1925-06-01", 33_000, n),
                "admitted_at": times,
                "discharged": [t.date() + dt.timedelta(days=int(d)) for t, d in zip(
                    times, rng.integers(0, 30, n), strict=True)],
                "clinic": rng.choice(["eye", "heart", "skin"], n),
                "systolic": rng.normal(128, 18, n).round().astype(int),
                "disease": rng.choice(["glaucoma", "angina", "eczema", "none"], n),
            }
        ),
        identifying=("visit_id",),
        known=("dob", "admitted_at", "discharged", "clinic"),
        sensitive=("systolic", "disease"),
    )  # fmt: skip


def einwohner(rng: Rng) -> Sample:
    """German names of columns, dates as 31.12.1980, decimals with a comma."""
    n = 1_500
    born = _days(rng, "1935-01-01", 25_000, n)
    return Sample(
        pa.table(
            {
                "Nachname": _words(rng, n),
                "Steuernummer": [f"{a:03d}/{b:04d}/{c:04d}" for a, b, c in zip(
                    rng.integers(100, 999, n), rng.permutation(n), rng.integers(0, 9999, n),
                    strict=True)],
                "Geburtsdatum": [day.strftime("%d.%m.%Y") for day in born],
                "PLZ": [f"{zone:05d}" for zone in rng.integers(1_000, 1_400, n)],
                "Geschlecht": rng.choice(["m", "w"], n),
                "Familienstand": rng.choice(["ledig", "verheiratet", "geschieden"], n),
                "Einkommen": rng.integers(8_000, 120_000, n),
                "Konfession": rng.choice(["keine", "rk", "ev", "andere"], n),
            }
        ),
        identifying=("Nachname", "Steuernummer"),
        known=("Geburtsdatum", "PLZ", "Geschlecht", "Familienstand"),
        sensitive=("Einkommen", "Konfession"),
    )  # fmt: skip


def salaires(rng: Rng) -> Sample:
    """French names of columns with accents and blanks; local dates with slashes."""
    n = 900
    hired = _days(rng, "1990-01-01", 12_000, n)
    return Sample(
        pa.table(
            {
                "Matricule": rng.permutation(np.arange(40_000, 40_000 + n)),
                "Prénom": _words(rng, n, 2),
                "Code postal": [f"{zone}" for zone in rng.integers(75_001, 75_021, n)],
                "Date d'embauche": [day.strftime("%d/%m/%Y") for day in hired],
                "Âge": rng.integers(18, 66, n),
                "Métier": rng.choice(["technicien", "cadre", "ouvrier", "vendeur"], n),
                "Salaire brut": np.round(rng.lognormal(7.8, 0.35, n)),
                "Arrêt maladie (jours)": rng.poisson(4, n),
            }
        ),
        identifying=("Matricule", "Prénom"),
        known=("Code postal", "Date d'embauche", "Âge", "Métier"),
        sensitive=("Salaire brut", "Arrêt maladie (jours)"),
    )


def wearable(rng: Rng) -> Sample:
    """A measure whose values are 95% unique."""
    n = 4_000
    level = np.round(rng.normal(50, 12, n), 3)
    exact = rng.normal(50, 12, n)
    hrv = np.where(rng.random(n) < 0.96, exact, level[0])
    return Sample(
        pa.table(
            {
                "device": [f"{word:08x}" for word in rng.choice(2**32, n, replace=False)],
                "age": rng.integers(16, 90, n),
                "gender": rng.choice(["f", "m", "x"], n, p=[0.49, 0.49, 0.02]),
                "signal": hrv,
                "drift": rng.normal(0, 1e-4, n),
                "sleep_hours": np.round(rng.normal(7, 1.2, n), 1),
                "depression": rng.choice(["none", "mild", "severe"], n, p=[0.7, 0.2, 0.1]),
            }
        ),
        identifying=("device",),
        known=("age", "gender"),
        sensitive=("signal", "drift", "sleep_hours", "depression"),
    )


def tickets(rng: Rng) -> Sample:
    """Free text, e-mail addresses and telephone numbers, some of them twice."""
    n = 800
    who = rng.integers(0, 600, n)
    verbs = ["asked for", "returned", "complained about", "paid", "cancelled"]
    things = ["the blue lamp", "an order of last week", "a late parcel", "the second invoice"]
    notes = [
        f"{_words(rng, 1)[0]} called and {rng.choice(verbs)} {rng.choice(things)}, twice"
        if i % 3
        else f"{rng.choice(verbs)} {rng.choice(things)}; wants an answer by telephone"
        for i in range(n)
    ]
    return Sample(
        pa.table(
            {
                "contact": [f"box{i}@example.org" for i in who],
                "callback": [f"+49 30 555{i:05d}" for i in who],
                "remarks": notes,
                "opened": _days(rng, "2025-01-01", 365, n),
                "country": rng.choice(["DE", "FR", "PL"], n, p=[0.6, 0.3, 0.1]),
                "amount_due": np.round(rng.gamma(2, 30, n), 2),
                "satisfaction": [None if x == 0 else int(x) for x in rng.integers(0, 6, n)],
            }
        ),
        identifying=("contact", "callback", "remarks"),
        known=("opened", "country"),
        sensitive=("amount_due", "satisfaction"),
    )


def encuesta(rng: Rng) -> Sample:
    """A survey of opinions with Spanish names of columns."""
    n = 2_200
    answers = ["muy en contra", "en contra", "neutral", "a favor", "muy a favor"]
    return Sample(
        pa.table(
            {
                "cedula": rng.choice(10**8, n, replace=False) + 10**8,
                "telefono": [f"09{number:08d}" for number in rng.choice(10**8, n)],
                "edad": rng.integers(18, 90, n),
                "municipio": [f"municipio {int(i)}" for i in rng.zipf(1.4, n) % 60],
                "voto_2024": rng.choice(["partido a", "partido b", "blanco", None], n),
                "opinion_impuestos": _text(rng.integers(0, 5, n), answers),
                "religion": rng.choice(["ninguna", "una", "otra"], n),
                "ingresos": [
                    None if v < 300 else float(v) for v in rng.normal(1500, 600, n).round()
                ],
            }
        ),
        identifying=("cedula", "telefono"),
        known=("edad", "municipio"),
        sensitive=("voto_2024", "opinion_impuestos", "religion", "ingresos"),
    )


def yiyuan(rng: Rng) -> Sample:
    """Chinese names of columns; the eighteenth character of an id is its check digit."""
    n = 1_000
    born = _days(rng, "1940-01-01", 24_000, n)
    ids = [f"1101{i % 90 + 10}{day:%Y%m%d}{i:03d}" for i, day in enumerate(born)]
    return Sample(
        pa.table(
            {
                "身份证号": [each + _check_digit(each) for each in ids],
                "姓名": rng.choice([chr(0x4E00 + i) + chr(0x5000 + i) for i in range(700)], n),
                "出生日期": born,
                "性别": rng.choice(["男", "女"], n),
                "城市": rng.choice(["甲", "乙", "丙", "丁"], n),
                "疾病": rng.choice(["甲型", "乙型", "无"], n, p=[0.1, 0.2, 0.7]),
                "工资": rng.integers(30, 300, n) * 100,
            }
        ),
        identifying=("身份证号", "姓名"),
        known=("出生日期", "性别", "城市"),
        sensitive=("疾病", "工资"),
    )


def adult(rng: Rng) -> Sample:
    """Real rows: people of a census by education, occupation, race, sex and income."""
    rows = census.rows(census.GROUPS)
    return Sample(
        rows.take(pa.array(rng.choice(rows.num_rows, 5_000, replace=False))),
        identifying=(),
        known=("education", "occupation", "race", "sex"),
        sensitive=("income",),
    )


def marriages(rng: Rng) -> Sample:
    """Real rows with a serial number, as a file of a registry has one."""
    rows = census.rows(census.MARRIAGES)
    taken = rows.take(pa.array(rng.choice(rows.num_rows, 3_000, replace=False)))
    return Sample(
        taken.add_column(0, "serial", pa.array(np.arange(1, 3_001))),
        identifying=("serial",),
        known=("education_num", "marital_status"),
        sensitive=("income",),
    )


MADE: tuple[Callable[[Rng], Sample], ...] = (
    hospital, insurance, panel, visits, einwohner, salaires,
    wearable, tickets, encuesta, yiyuan, adult, marriages,
)  # fmt: skip
NAMES = tuple(made.__name__ for made in MADE)


def sample(name: str) -> Sample:
    """One of the twelve, the same at every call."""
    number = NAMES.index(name)
    return MADE[number](np.random.default_rng([16, number]))

"""What the scripts of this folder share: findings, figures, pages and data.

A script makes a ``Study``, adds ``Finding``s with their figures, and writes

    figures/<paper>-<item>.png    the figure, with statement, number, spread and verdict below
    results/<paper>.json          the findings, from which ``summary.py`` makes docs/papers.md
    <paper>.md                    the page of the paper

``--quick`` runs few rows and few repetitions and writes nothing into this folder unless
``--folder`` says where: that is what the tests do.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
# Beside a checkout there may be real data; without it generated tables stand in.
DATA = HERE.parents[2] / "shared" / "data"
VERDICTS = ("reproduced", "reproduced with a correction", "contradicted")
Verdict = Literal["reproduced", "reproduced with a correction", "contradicted"]


@dataclass(frozen=True)
class Finding:
    """One table, figure or number of a paper, and what became of it here."""

    item: str  # "figure 4", "table 2", "theorem 1"
    statement: str  # what the paper says, in our words
    ours: str  # our number, with its spread
    runs: int  # how many independent runs the spread is over; 1 where nothing is drawn
    verdict: Verdict
    why: str = ""  # what differs, and the section that corrects it
    data: str = ""  # which data
    figure: str = ""  # file name, filled in by the study


@dataclass
class Study:
    """The findings of one paper."""

    paper: str  # short name: olap, fine, recon, splu
    title: str
    quick: bool = False
    runs: int = 10
    folder: Path = HERE
    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def of(cls, paper: str, title: str, arguments: list[str] | None = None) -> Study:
        """A study with the options of the command line."""
        parser = argparse.ArgumentParser(description=f"Reproduce: {title}")
        parser.add_argument("--quick", action="store_true", help="few rows and runs, for tests")
        parser.add_argument("--runs", type=int, default=10, help="repetitions (10)")
        parser.add_argument("--folder", type=Path, help="where figures and results go")
        given = parser.parse_args(arguments)
        folder = given.folder or HERE
        if given.quick and given.folder is None:
            parser.error("--quick wants --folder: its figures are not worth keeping")
        return cls(paper, title, given.quick, 3 if given.quick else given.runs, folder)

    def add(self, finding: Finding, figure: Figure | None = None) -> None:
        """Note a finding; its figure gets the words below it."""
        if finding.verdict not in VERDICTS:
            raise ValueError(f"no such verdict: {finding.verdict}")
        if figure is not None:
            name = f"{self.paper}-{finding.item.replace(' ', '-')}.png"
            self._draw(figure, finding, name)
            finding = Finding(**{**asdict(finding), "figure": name})
        self.findings.append(finding)
        print(f"{finding.item}: {finding.verdict}. {finding.ours}", flush=True)

    def _draw(self, figure: Figure, finding: Finding, name: str) -> None:
        words = f"Paper: {finding.statement}\n"
        drawn = f", {finding.runs} runs" if finding.runs > 1 else ""
        words += f"Here ({finding.data or 'no data'}{drawn}): {finding.ours}"
        words += f"\nVerdict: {finding.verdict}. {finding.why}"
        text = "\n".join(line for part in words.split("\n") for line in textwrap.wrap(part, 110))
        figure.text(0.01, -0.02, text, fontsize=7, va="top", family="monospace")
        place = self.folder / "figures"
        place.mkdir(parents=True, exist_ok=True)
        # No date in the file, so that an unchanged figure is an unchanged file.
        figure.savefig(place / name, dpi=100, bbox_inches="tight", metadata={"Software": None})

    def write(self) -> None:
        """Write results and page."""
        results = self.folder / "results"
        results.mkdir(parents=True, exist_ok=True)
        whole = {"paper": self.paper, "title": self.title, "runs": self.runs}
        whole["findings"] = [asdict(finding) for finding in self.findings]
        (results / f"{self.paper}.json").write_text(json.dumps(whole, indent=1) + "\n")
        (self.folder / f"{self.paper}.md").write_text(self.page())

    def page(self) -> str:
        """The page of the paper, in Markdown."""
        lines = [f"# {self.title}", "", f"Made by `python examples/papers/{self.paper}.py`.", ""]
        lines[2] += " Corrections are numbered as in [docs/papers.md](../../docs/papers.md)."
        for finding in self.findings:
            lines += [f"## {finding.item[0].upper()}{finding.item[1:]}: {finding.verdict}", ""]
            lines += [f"The paper: {finding.statement}", ""]
            spread = f", {finding.runs} runs" if finding.runs > 1 else ""
            lines += [f"Here{f' ({finding.data}{spread})' if finding.data else ''}: {finding.ours}"]
            lines += ["", *([finding.why, ""] if finding.why else [])]
            if finding.figure:
                lines += [f"![{finding.item}](figures/{finding.figure})", ""]
        return "\n".join(lines)


def spread(values: object, digits: int = 3) -> str:
    """Mean and standard deviation over runs, as text.

    >>> spread([1.0, 2.0, 3.0])
    '2 ± 1'
    """
    numbers = np.asarray(values, dtype=float)
    sd = numbers.std(ddof=1) if numbers.size > 1 else 0.0
    return f"{numbers.mean():.{digits}g} ± {sd:.{min(digits, 2)}g}"


def stored(name: str) -> pa.Table | None:
    """A real table when it is beside the checkout, else None; categories become text."""
    path = DATA / name
    if not path.exists():
        return None
    table = pq.read_table(path)
    plain = [
        column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(plain, names=table.column_names)


def adult(rng: np.random.Generator, rows: int = 45_222) -> tuple[pa.Table, str]:
    """UCI Adult without rows that miss a value, or a generated table of its shape.

    The generated one has the columns that the papers use, with about Adult's numbers of values
    and an income that depends on education and occupation.
    """
    found = stored("adult_45222.parquet")
    if found is not None:
        return found, "ADULT"
    years = rng.choice(np.arange(1, 17), rows, p=_falling(16, rng))
    job = rng.choice(14, rows, p=_falling(14, rng))
    age = np.clip(17 + rng.gamma(3.0, 7.5, rows), 17, 90).astype(int)
    hours = np.clip(rng.normal(40, 12, rows), 1, 99).astype(int)
    race = rng.choice(5, rows, p=[0.86, 0.09, 0.03, 0.01, 0.01])
    sex = rng.choice(["Male", "Female"], rows, p=[0.67, 0.33])
    logit = -4.2 + 0.22 * years + 0.12 * (job % 5) + 0.03 * (age - 38) + 0.5 * (sex == "Male")
    rich = rng.random(rows) < 1 / (1 + np.exp(-logit))
    gain = np.where(rng.random(rows) < 0.08, rng.integers(1, 100_000, rows), 0)
    return pa.table(
        {
            "age": age,
            "education": [f"education {i}" for i in years],
            "education_num": years,
            "occupation": [f"occupation {i}" for i in job],
            "race": [f"race {i}" for i in race],
            "sex": sex,
            "capital_gain": gain,
            "hours_per_week": hours,
            "fnlwgt": rng.integers(12_000, 1_500_000, rows),
            "income": np.where(rich, ">50K", "<=50K"),
        }
    ), "a generated table of ADULT's shape"


def census(rng: np.random.Generator, rows: int = 147_754) -> tuple[pa.Table, str]:
    """UCI Census-Income (KDD), people with an occupation: the substitute for CENSUS 500K."""
    found = stored("census_income_kdd_workers.parquet")
    if found is not None:
        return found, "Census-Income (KDD), 147,754 workers"
    job = rng.choice(46, rows, p=_falling(46, rng, 0.4))
    return pa.table(
        {
            "age": np.clip(16 + rng.gamma(3.0, 7.5, rows), 16, 90).astype(int),
            "gender": rng.choice(["Male", "Female"], rows),
            "education": [f"education {i}" for i in (job // 4 + rng.integers(0, 6, rows))],
            "marital": [f"marital {i}" for i in rng.choice(7, rows, p=_falling(7, rng))],
            "race": [f"race {i}" for i in rng.choice(5, rows, p=[0.8, 0.1, 0.05, 0.03, 0.02])],
            "occupation": job,
        }
    ), "a generated table of the census's shape"


def reactions(rng: np.random.Generator, rows: int = 26_574) -> tuple[pa.Table, str]:
    """VAERS 2014, one reaction a report without "No adverse event": the substitute for CADR."""
    found = stored("vaers2014_one_reaction_per_report.parquet")
    if found is not None:
        return found.filter(pc.field("reaction") != "No adverse event"), "VAERS 2014"
    size = 400
    kind = rng.choice(size, rows, p=_falling(size, rng, 0.8))
    kind_of = [f"vaccine {i}" for i in rng.choice(60, rows, p=_falling(60, rng, 0.9))]
    return pa.table(
        {
            "reaction": [f"reaction {i}" for i in kind],
            "vax_type": kind_of,
            "vax_dose": rng.choice(["1", "2", "3", "Unknown"], rows),
        }
    ), "a generated table of reaction reports"


def _falling(size: int, rng: np.random.Generator, power: float = 0.7) -> np.ndarray:
    """Zipf-like shares in a shuffled order."""
    weights = np.arange(1, size + 1) ** -power
    rng.shuffle(weights)
    return np.asarray(weights / weights.sum())

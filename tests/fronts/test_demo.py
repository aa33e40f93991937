"""`privsql demo`: the real command in an empty folder, and what it is made of."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

import privsql
from privsql.audit.job import audit
from privsql.fronts.cli.main import main
from privsql.fronts.demo import questions as q
from privsql.fronts.demo.folder import MARK
from privsql.fronts.demo.recipe import DISEASES, SMOKER, clinic
from privsql.fronts.demo.screen import Screen, wrapped
from privsql.fronts.demo.story import tell
from privsql.fronts.demo.worth import posterior
from privsql.fronts.shell.display import Display, problem
from tests import demos
from tests.demos import Told

CLI = [sys.executable, "-m", "privsql.fronts.cli.main"]
GOLDEN = Path(__file__).with_name("demo.txt")
FILES = {q.SOURCE, q.SPEC, q.RELEASE, q.PICTURE, q.README}
# The commands that the demo suggests are found beside the interpreter that runs it.
PATH = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> Told:
    return demos.told(tmp_path_factory)


def steps(text: str) -> list[str]:
    """What stands before the first step, and each step."""
    return re.split(r"(?m)^(?=\d\. )", text)


def ours(text: str) -> str:
    """The text without the bodies of EXPLAIN and audit, whose words belong to others."""
    parts = steps(text)
    for n in (7, 8):
        title = parts[n].partition("\n")[0]
        parts[n] = f"{title}\n\n    (not held here)\n\n"
    return "".join(parts)


# -- the command -----------------------------------------------------------------------


def test_the_story_is_the_same_each_time(told):
    assert ours(told.text) == GOLDEN.read_text(encoding="utf-8")


def test_the_steps_are_numbered_and_plain(told):
    assert [part[:2] for part in steps(told.text)[1:]] == [f"{n}." for n in range(1, 10)]
    assert "\x1b" not in told.text
    assert [line for line in told.text.splitlines() if len(line) > 80] == []


def test_the_files_open(told):
    assert {path.name for path in told.folder.iterdir()} == FILES
    assert pq.read_table(told.folder / q.SOURCE).num_rows == q.ROWS
    assert tomllib.loads((told.folder / q.SPEC).read_text())["release"]["source"] == q.SOURCE
    manifest = privsql.release.open(told.folder / q.RELEASE).manifest
    assert (manifest.rows, manifest.privacy.seeded) == (q.ROWS, True)
    picture = (told.folder / q.PICTURE).read_bytes()
    assert picture.startswith(b"\x89PNG\r\n")
    assert len(picture) > 10_000
    assert (told.folder / q.README).read_text().startswith(MARK)


def test_truth_and_estimate_are_what_raw_table_and_published_rows_say(told):
    """Counts inverted by hand: x = (y - n (1 - p) / m) / p."""
    shown = re.findall(
        r"(?m)^    (\w+) +([\d,.]+) +([\d,.]+) ± ([\d,.]+) +([\d,.]+) to ([\d,.]+) +(yes|NO)$",
        steps(told.text)[5],
    )
    assert len(shown) == 7
    raw = duckdb.connect()
    raw.execute("CREATE TABLE patients AS FROM read_parquet(?)", [str(told.folder / q.SOURCE)])
    truths = raw.execute(q.BY_DISTRICT.sql).fetchall()
    raw.close()
    with privsql.release.open(told.folder / q.RELEASE).connection() as con:
        published = con.execute(
            "SELECT district, COUNT(*) FILTER (WHERE disease = 'diabetes'), COUNT(*)"
            " FROM patients GROUP BY district ORDER BY district"
        ).fetchall()
    for line, (district, truth), (_, y, n) in zip(shown[:5], truths, published, strict=True):
        assert line[:3] == (district, f"{truth:,}", f"{(y - n * 0.6 / 8) / 0.4:,.0f}")
    for _, truth, _, error, low, high, said in shown:
        truth, error, low, high = (float(x.replace(",", "")) for x in (truth, error, low, high))
        assert abs((high - low) / 2 - error) <= 1  # each is rounded for itself
        assert said == ("yes" if low <= truth <= high else "NO")
    held = sum(line[-1] == "yes" for line in shown)
    assert f"{held} of 7 intervals contain the true value." in told.text


def test_the_bars_are_the_library_s(told):
    with contextlib.closing(privsql.connect(told.folder / q.RELEASE)) as con:
        for question in q.QUESTIONS:
            for *_, n, _error, low, high, _fine in con.sql(question.sql, error_bars=True):
                part = f"± {(high - low) / 2:,.{question.digits}f}"
                assert f"{n:,.{question.digits}f} {part}" in told.text
                assert f"{low:,.{question.digits}f} to {high:,.{question.digits}f}" in told.text


def test_a_row_is_worth_what_a_slow_count_says(told):
    """Bayes over all 16 pairs, one by one, in plain Python."""
    with contextlib.closing(privsql.connect(told.folder / q.RELEASE)) as con:
        counts = {(s, d): n for s, d, n in con.execute(q.PRIOR).fetchall()}

    def chance(original: str, published: str, p: float, m: int) -> float:
        return (1 - p) / m + p * (original == published)

    seen = {
        (s, d): n * chance(s, "no", 0.5, 2) * chance(d, "hiv", 0.4, 8)
        for (s, d), n in counts.items()
    }
    after = (seen["no", "hiv"] + seen["yes", "hiv"]) / sum(seen.values())
    before = (counts["no", "hiv"] + counts["yes", "hiv"]) / sum(counts.values())
    step = " ".join(steps(told.text)[4].split())
    assert f"Of all patients {before:.1%} have it" in step
    assert f"says hiv and smoker no, {after:.1%}." in step
    assert f"with {1 - after:.0%} probability" in step


def test_the_refusal_is_shown_as_people_see_it(told):
    con = privsql.connect(told.folder / q.RELEASE)
    with contextlib.closing(con), pytest.raises(privsql.Error) as refused:
        con.sql(q.PERSONAL)
    lines = problem(refused.value, Display(width=75)).splitlines()
    assert lines[-1].startswith("HINT: ")
    assert "\n".join(f"    {line}" for line in lines) in steps(told.text)[6]


def test_explain_and_audit_are_the_library_s(told):
    with contextlib.closing(privsql.connect(told.folder / q.RELEASE)) as con:
        explained = con.explain(q.BY_DISTRICT.sql)
    first = wrapped(explained.rstrip()).splitlines()
    assert len(first) > 5
    assert "\n".join(f"    {line}".rstrip() for line in first) in steps(told.text)[7]
    summary = audit(told.folder / q.RELEASE, raw=told.folder / q.SOURCE).summary()
    words = summary.replace(str(told.folder / q.RELEASE), q.RELEASE).split()
    assert " ".join(words) in " ".join(steps(told.text)[8].split())


def test_the_picture_shows_every_cell(told):
    """How many of its 40 intervals contain the truth, asked cell by cell."""
    raw = duckdb.connect()
    raw.execute("CREATE TABLE patients AS FROM read_parquet(?)", [str(told.folder / q.SOURCE)])
    sql = "SELECT disease, district, COUNT(*) AS n FROM patients GROUP BY ALL ORDER BY ALL"
    truths = raw.execute(sql).fetchall()
    raw.close()
    with contextlib.closing(privsql.connect(told.folder / q.RELEASE)) as con:
        found = con.sql(sql, error_bars=True).fetchall()
    held = sum(
        low <= truth <= high
        for (*_, truth), (*_, low, high, _fine) in zip(truths, found, strict=True)
    )
    said = " ".join(steps(told.text)[8].split())
    assert f"every disease in every district: {held} of 40 intervals contain the truth" in said


def test_what_it_says_to_type_works(told, tmp_path, monkeypatch):
    folder = tmp_path / "privsql-demo"
    shutil.copytree(told.folder, folder)
    block = re.findall(r"(?m)^    (.*)$", steps(told.text)[9])
    assert block[0] == "cd privsql-demo"
    assert "\n".join(block[1:]) in (folder / q.README).read_text()
    assert subprocess.run(["bash", "-n", "-c", "\n".join(block)]).returncode == 0
    words = shlex.split("\n".join(block[1:]), comments=True)
    typed = [shlex.split(each.typed) for each in q.NEXT]
    assert words == [word for command in typed for word in command]
    monkeypatch.chdir(folder)
    said = {}
    for name, *arguments in typed:
        assert name == "privsql"
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        said[arguments[0]] = done.stdout
    assert "teaching" in said["query"]
    assert "condition number" in said["explain"]
    assert "visited" in tomllib.loads(said["init"])["columns"]
    assert privsql.release.open(q.AGAIN).manifest.rows == q.ROWS
    assert not privsql.release.open(q.AGAIN).manifest.privacy.seeded
    assert {path.name for path in folder.iterdir()} == FILES | {q.AGAIN}


def test_ctrl_c_leaves_nothing(tmp_path):
    process = subprocess.Popen(
        [*CLI, "demo"],
        cwd=tmp_path,
        env={**os.environ, **PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("3. "):
            break
    process.send_signal(signal.SIGINT)
    _, problem = process.communicate(timeout=60)
    assert process.returncode == 1
    assert problem == "interrupted; nothing was changed\n"
    assert list(tmp_path.iterdir()) == []


# -- in this process, on fewer rows ----------------------------------------------------


@contextlib.contextmanager
def silent():
    yield lambda rows: None


class Stopped(Screen):
    """Ctrl-C when a step begins."""

    def __init__(self, at: int) -> None:
        super().__init__(Console(file=io.StringIO()))
        self._left = at

    def step(self, title: str) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt
        super().step(title)


def test_a_second_demo_replaces_the_first(told, tmp_path):
    folder = tmp_path / "privsql-demo"
    shutil.copytree(told.folder, folder)
    (folder / q.AGAIN).write_text("made by a command that the demo suggests")
    (folder / q.RELEASE).write_text("spoilt")
    inode = folder.stat().st_ino
    tell(folder, Screen(Console(file=io.StringIO())), silent, rows=5_000)
    assert {path.name for path in folder.iterdir()} == FILES
    assert privsql.release.open(folder / q.RELEASE).manifest.rows == 5_000
    assert folder.stat().st_ino == inode  # a shell may stand in it
    assert [path.name for path in tmp_path.iterdir()] == ["privsql-demo"]


@pytest.mark.parametrize("at", [1, 9])
def test_stopped_anywhere_an_earlier_demo_stays(at, tmp_path):
    folder = tmp_path / "clinic"
    folder.mkdir()
    (folder / q.README).write_text(f"{MARK}\n")
    (folder / q.RELEASE).write_text("earlier")
    with pytest.raises(KeyboardInterrupt):
        tell(folder, Stopped(at), silent, rows=5_000)
    assert [path.name for path in tmp_path.iterdir()] == ["clinic"]
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        q.README: f"{MARK}\n",
        q.RELEASE: "earlier",
    }


def test_without_matplotlib_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setenv("PATH", "")
    out = io.StringIO()
    tell(tmp_path, Screen(Console(file=out, width=200)), silent, rows=5_000)
    assert "No picture: " in out.getvalue()
    assert "pip install 'privsql[plot]'" in " ".join(out.getvalue().split())
    assert {path.name for path in tmp_path.iterdir()} == FILES - {q.PICTURE}
    # Nor is the command on the PATH here; the shell is told where it is.
    assert f'export PATH={Path(sys.executable).parent}:"$PATH"' in out.getvalue()


def _file(folder: Path) -> None:
    folder.write_text("mine")


def _foreign(folder: Path) -> None:
    folder.mkdir()
    (folder / q.README).write_text("notes of my own\n")


def _mixed(folder: Path) -> None:
    folder.mkdir()
    (folder / q.README).write_text(f"{MARK}\n")
    (folder / "thesis.txt").write_text("mine")


def _nested(folder: Path) -> None:
    (folder / q.RELEASE).mkdir(parents=True)
    (folder / q.README).write_text(f"{MARK}\n")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_file, "is not a folder"),
        (_foreign, "is not a demo's folder"),
        (_mixed, "are not the demo's: thesis.txt"),
        (_nested, f"are not the demo's: {q.RELEASE}"),
    ],
)
def test_a_folder_that_is_not_ours_is_refused(make, reason, tmp_path):
    folder = tmp_path / "mine"
    make(folder)
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(main, ["demo", "--folder", str(folder)])
    assert done.exit_code == 1
    assert reason in done.stderr
    assert "--folder" in done.stderr.splitlines()[-1]
    assert done.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_in_no_folder_is_refused(tmp_path):
    done = CliRunner().invoke(main, ["demo", "--folder", str(tmp_path / "no" / "where")])
    assert done.exit_code == 1
    assert done.stderr.startswith("ERROR 58000 [operational]: cannot write beside ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colour_on_a_terminal_that_wants_it(no_color, monkeypatch):
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    out = io.StringIO()
    screen = Screen(Console(file=out, force_terminal=True))
    screen.step("A [bold] title")
    screen.table([("a", "b"), ("1", "2")], "<>")
    screen.quote("SELECT 1", "green")
    assert ("\x1b[" in out.getvalue()) == (not no_color)
    assert "1. A [bold] title" in out.getvalue()


# -- the recipe and the arithmetic -----------------------------------------------------


def test_a_seed_is_one_table_for_good():
    table = clinic(2_000, np.random.default_rng(1))
    written = "\n".join(map(str, table.to_pylist()))
    digest = hashlib.sha256(written.encode()).hexdigest()
    assert digest == "3fd7c2d51565e8bda591551f3f547a3545b8d4e1a20ff11d643c87b5a1dedd16"


def test_columns_depend_on_each_other_as_the_recipe_says():
    table = clinic(100_000, np.random.default_rng(2)).to_pandas()
    ill = table.assign(smokes=table.smoker == "yes")
    assert ill[ill.disease == "copd"].smokes.mean() > 2 * ill[ill.disease == "none"].smokes.mean()
    assert set(table[table.age == 20].job) == {
        "care",
        "construction",
        "office",
        "sales",
        "teaching",
    }
    assert set(table[table.age == 80].job) == {"retired"}
    by_age = table.assign(d=table.disease == "diabetes").groupby("age").d.mean()
    assert by_age[70] > 5 * by_age[20]
    harbour = table.district == "harbour"
    asthma = table.disease == "asthma"
    assert asthma[harbour].mean() > 1.3 * asthma[~harbour].mean()
    costs = table.groupby("disease").cost.mean()
    assert costs.idxmax() == "hiv"
    assert costs.idxmin() == "none"
    assert table.visited.min().year == table.visited.max().year == 2025
    assert set(table.disease) == set(DISEASES)
    assert set(table.smoker) == set(SMOKER)
    assert table.cost.min() >= 1


def test_the_spec_lists_what_the_recipe_makes():
    columns = tomllib.loads(q.SPEC_TEXT)["columns"]
    assert columns["disease"]["domain"] == list(DISEASES)
    assert columns["smoker"]["domain"] == list(SMOKER)


def test_a_posterior_is_the_share_among_rows_that_look_alike():
    """Perturb many rows by hand and count: the posterior of three columns."""
    rng = np.random.default_rng(3)
    prior = rng.dirichlet(np.ones(12)).reshape(2, 3, 2)
    matrices = [0.4 * np.eye(m) + 0.6 / m for m in prior.shape]
    states = np.array(list(itertools.product(*map(range, prior.shape))))
    rows = states[rng.choice(12, size=400_000, p=prior.ravel())]
    published = np.empty_like(rows)
    for k, m in enumerate(prior.shape):
        kept = rng.random(len(rows)) < 0.4
        published[:, k] = np.where(kept, rows[:, k], rng.integers(m, size=len(rows)))
    seen = rows[(published == (1, 2, 0)).all(axis=1)]
    counted = np.zeros(prior.shape)
    np.add.at(counted, tuple(seen.T), 1)
    expected = posterior(prior, matrices, (1, 2, 0))
    assert len(seen) > 10_000
    # Five standard errors of a share among 10,000.
    np.testing.assert_allclose(counted / len(seen), expected, atol=0.025)
    assert abs(expected.sum() - 1) < 1e-12

"""What the documents say is run, and what must be documented is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import programs
from tests.docs.reference import commands, page
from tests.docs.serving import PASSWORD, Followed, needed
from tests.fronts.pgwire.clients.conftest import node  # noqa: F401 - a fixture
from udfs.functions import FUNCTIONS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(path.read_text())


def run(code: str, folder: Path = ROOT) -> str:
    done = programs.python(code, cwd=folder, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def python_blocks() -> list[tuple[str, str, str | None]]:
    """Each Python block with the output block that follows it, if one does."""
    found = []
    for path in DOCUMENTS:
        parts = blocks(path)
        for i, (language, code) in enumerate(parts):
            if language == "python":
                follows = parts[i + 1] if i + 1 < len(parts) else ("", None)
                found.append((path.name, code, follows[1] if follows[0] == "" else None))
    return found


def shell_lines() -> list[str]:
    return sorted(
        {
            line
            for path in DOCUMENTS
            for language, code in blocks(path)
            if language in ("sh", "bash", "shell")
            for line in code.splitlines()
            if line.strip()
        }
    )


@pytest.mark.parametrize("line", [line for line in shell_lines() if line.startswith("make ")])
def test_make_lines_name_targets(line):
    """The tests are themselves inside one, so targets are not run, only resolved."""
    done = subprocess.run(
        ["make", "--dry-run", *line.split()[1:]], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def commands_of(path: Path, *starts: str) -> list[str]:
    lines = [x for kind, code in blocks(path) if kind == "sh" for x in code.splitlines()]
    return [line for line in lines if line.startswith(starts)]


README, BI = ROOT / "README.md", ROOT / "docs" / "bi.md"


def followed(folder: Path, path: Path, running: ExitStack) -> Followed:
    """Do what a page says; a Python block of the README has made the release that it names."""
    run(next(code for _, code, _ in python_blocks() if "rows.csv" in code), folder)
    (folder / "grafana.password").write_text(PASSWORD)
    made = Followed(folder)
    made.follow(commands_of(path, "privsql ", "openssl "), running)
    return made


@pytest.fixture(scope="module")
def bi(tmp_path_factory) -> Iterator[Followed]:
    with ExitStack() as running:
        yield followed(tmp_path_factory.mktemp("bi"), BI, running)


@pytest.mark.parametrize("line", commands_of(BI, "psql "))
def test_psql_lines_about_bi_tools(bi, line):
    needed("psql")
    printed = bi.typed(line)
    wanted = (
        "n_stderr" if "error_bars" in line else "sensitive: perturbed" if "\\d+" in line else "row"
    )
    assert wanted in printed


def test_python_about_bi_tools(bi):
    ((_, code, output),) = [block for block in python_blocks() if block[0] == "bi.md"]
    code = bi.here(code).replace("password=open%20sesame", "password='open sesame'")
    assert run(code, bi.folder) == output


def test_uris_about_bi_tools(bi):
    """Those of Superset and Node are libpq's but for the driver's name."""
    found = re.findall(r"(?<!jdbc:)postgresql(\+\w+)?(://\S+?)['\"`]", BI.read_text())
    assert {driver for driver, _ in found} == {"", "+psycopg", "+psycopg2"}
    strings = re.findall(r"`(host=[^`]+)`", BI.read_text())
    assert len(strings) >= 2
    uris = sorted({"postgresql" + rest for _, rest in found})
    program = "import psycopg, sys\nfor uri in sys.argv[1:]:\n    psycopg.connect(uri).close()\n"
    done = subprocess.run(
        [sys.executable, "-c", program, *map(bi.here, [*uris, *strings])],
        cwd=bi.folder,
        env=bi.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_forms_and_files_about_bi_tools(bi):
    """What forms ask for is the same everywhere, and Grafana's file names its own user."""
    import psycopg

    text = BI.read_text()
    users = set(re.findall(r"(?:Username `|^ +user: )(\w+)", text, re.MULTILINE))
    assert users == {"ann", "grafana"}
    bases = re.findall(r"(?:Database(?: name)? `|database: |Database=)(\w+)", text)
    assert set(bases) == {"privsql"}
    assert len(bases) >= 5
    ports = set(re.findall(r"(?:Port `|Port=|(?:url:|URL) `?127\.0\.0\.1:)(\d+)", text))
    assert ports == {"5433"}
    for user in users:
        given = {"host": "127.0.0.1", "port": bi.here("5433"), "dbname": bases[0]}
        with psycopg.connect(**given, user=user, password=PASSWORD) as connection:
            assert connection.execute("SELECT count(*) FROM patients").fetchone() == (30_000,)


JAVA = """
import java.sql.*;
public class Connects {
  public static void main(String[] urls) throws Exception {
    for (String url : urls) {
      try (Connection c = DriverManager.getConnection(url + "&password=open%20sesame");
           ResultSet found = c.createStatement().executeQuery(
               "SELECT illness, count(*) AS n FROM patients GROUP BY illness")) {
        System.out.println(found.getMetaData().getColumnCount());
      }
    }
  }
}
"""


@pytest.mark.soak
def test_jdbc_about_bi_tools(bi):
    jar = Path("/usr/share/java/postgresql.jar")
    needed("javac")
    if not jar.exists():
        pytest.skip("libpostgresql-jdbc-java is not installed")
    (bi.folder / "Connects.java").write_text(JAVA)
    urls = re.findall(r"jdbc:[^`]+", BI.read_text())
    done = subprocess.run(
        ["java", "-cp", jar, "Connects.java", *map(bi.here, urls)],
        cwd=bi.folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # With error bars an estimate has four columns more.
    assert sorted(done.stdout.split()) == ["2", "2", "6"]


@pytest.mark.soak
def test_node_about_bi_tools(bi, node):  # noqa: F811 - the fixture
    ((_, code),) = [block for block in blocks(BI) if block[0] == "js"]
    done = subprocess.run(
        ["node", "-e", bi.here(code)],
        env={**os.environ, "NODE_PATH": str(node)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) > 0


def statements_of_bi() -> list[tuple[str, str]]:
    """Statements in a table beside what becomes of them."""
    rows = re.findall(
        r"^\| .*?`((?:SELECT|INSERT) .*?)` \| (.*?) \|$", BI.read_text(), re.MULTILINE
    )
    assert len(rows) == 7
    return rows


@pytest.mark.parametrize(("text", "verdict"), statements_of_bi())
def test_what_is_refused_to_bi_tools(bi, text, verdict):
    import psycopg

    given = {"host": "127.0.0.1", "port": bi.here("5433"), "dbname": "privsql", "user": "ann"}
    code = re.search(r"refused \((\w+)\)", verdict)
    notices = []
    with psycopg.connect(**given, password=PASSWORD) as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        if code is None:
            connection.execute(text)
            assert notices[0].endswith("[domain]")
        else:
            with pytest.raises(psycopg.Error) as problem:
                connection.execute(text)
            assert problem.value.sqlstate == code[1]
            assert problem.value.diag.message_detail.startswith("privsql: ")


SNIPPETS = [code for language, code in blocks(BI) if language == "sql"]


@pytest.mark.parametrize("text", SNIPPETS)
def test_error_bars_as_columns(bi, text):
    """A key, an estimate and the ends of its interval, also where a tool wraps the statement."""
    import psycopg

    given = {"host": "127.0.0.1", "port": bi.here("5433"), "dbname": "privsql", "user": "ann"}
    with psycopg.connect(**given, password=PASSWORD) as connection:
        rows = connection.execute(text).fetchall()
        assert len(rows) == 2
        for _, estimate, low, high in rows:
            assert low < estimate < high
        # The statement inside, asked alone, has the same figures.
        inner = re.search(r"(?i)FROM \((SELECT .*?)\) (?:AS )?[\"v]", text)
        if inner is not None:
            assert sorted(connection.execute(inner[1]).fetchall()) == sorted(rows)


def test_the_sql_of_every_tool_is_there():
    text = BI.read_text()
    for tool in ("Superset", "Metabase", "Grafana", "Power BI", "Tableau"):
        assert "```sql\n" in text.partition(f"### {tool}: error bars\n")[2].partition("\n##")[0]


def test_the_versions_of_drivers_are_those_that_run():
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    table = BI.read_text().partition("## Drivers")[2]
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| `make test` \|", table, re.MULTILINE)
    names = {"psycopg": "psycopg", "asyncpg": "asyncpg", "SQLAlchemy": "SQLAlchemy"}
    found = {name: version for name, version in rows if name in names}
    assert found == {name: pinned[key] for name, key in names.items()}


def test_every_command_and_option_is_documented():
    """On a change: python -m tests.docs.reference > docs/cli.md."""
    assert (ROOT / "docs" / "cli.md").read_text() == page() + "\n"
    text = README.read_text()
    assert [name for name, _ in commands() if name not in text] == []


def anchors(path: Path) -> set[str]:
    """What a heading of a page is called in links, as code hosts make it."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


PAGES = [*DOCUMENTS, *sorted((ROOT / "examples" / "papers").glob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{path.name}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{path.name}: {target}"


def test_every_make_target_is_documented():
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE))
    documents = "".join(path.read_text() for path in DOCUMENTS)
    undocumented = {t for t in targets - {"install", "clean"} if f"make {t}" not in documents}
    assert undocumented == set()
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split())
    assert phony == targets


def functions_page() -> str:
    lines = [
        "# SQL functions",
        "",
        "`udfs.register.register(connection)` makes these known to a DuckDB database. Vectors over",
        "states are lists; the transition matrix is a list of factors, one per column, each a",
        "square matrix whose rows sum to one. The last column's cell changes fastest.",
        "NULL in gives NULL out; an end of an interval that is not known is NULL.",
        "",
    ]
    for function in FUNCTIONS:
        inside = ", ".join(f"{name} {kind}" for name, kind in function.parameters.items())
        lines += [
            f"## {function.name}",
            "",
            function.meaning[0].upper() + function.meaning[1:] + ".",
            "",
            "```sql",
            f"{function.name}({inside})",
            f"  -> {function.returns}",
            "```",
            "",
        ]
    return "\n".join(lines)


def test_the_page_of_functions_is_what_the_code_says():
    """On a change: python -m tests.test_docs > docs/functions.md."""
    assert (ROOT / "docs" / "functions.md").read_text() == functions_page()


EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


# Each in a child of its own of a process that has imported what takes a second, with warnings as
# errors; a line with the number of bytes that a child wrote stands before them.
FORKED = """
import os, runpy, sys
import duckdb, numpy, pandas, pyarrow, scipy.special, sqlglot
import privsql.session.session
for path in sys.argv[1:]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        runpy.run_path(path, run_name="__main__")
        break
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read()
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{path} failed")
    sys.stdout.buffer.write(b"%d\\n" % len(said) + said)
"""


@pytest.fixture(scope="module")
def examples() -> dict[str, str]:
    """What each of the examples prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKED, *map(str, EXAMPLES)],
        capture_output=True,
        timeout=300,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    found, rest = {}, done.stdout
    for path in EXAMPLES:
        size, _, rest = rest.partition(b"\n")
        found[path.name], rest = rest[: int(size)].decode(), rest[int(size) :]
    assert rest == b""
    return found


def test_examples_run(examples):
    assert len(examples) >= 6
    assert [name for name, printed in examples.items() if not printed] == []
    # Intervals that the last one makes by hand hold the truth.
    printed = examples[EXAMPLES[-1].name]
    rows = re.findall(r"^ +(?:north|south) +(\d+) .*\[(\d+), (\d+)\]$", printed, re.MULTILINE)
    assert len(rows) == 2
    for truth, low, high in rows:
        assert int(low) <= int(truth) <= int(high)


def test_no_document_names_a_machine_path_or_a_registry():
    pattern = re.compile(r"/(?:work|root|home|tmp)/|pypi\.org|debian\.org|npmjs")
    for path in [*DOCUMENTS, ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "constraints.txt"]:
        assert not pattern.search(path.read_text()), path.name


if __name__ == "__main__":
    sys.stdout.write(functions_page())

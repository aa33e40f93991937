"""What the documents say is run, and what must be documented is."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from udfs.functions import FUNCTIONS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(path.read_text())


def run(code: str, folder: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )
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


# Those of the other page want a server; they are below.
ALONE = [block for block in python_blocks() if block[0] != "bi.md"]


@pytest.mark.parametrize(("name", "code", "output"), ALONE)
def test_python_blocks_run_and_print_what_is_shown(name, code, output, tmp_path):
    printed = run(code, tmp_path)
    if output is not None:
        assert printed == output


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
PASSWORD = "open sesame"
# Runs a command in a terminal of its own, and types a password where one is asked for.
TERMINAL = """
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
seen = b""
try:
    while part := os.read(terminal, 1000):
        seen += part
        if seen.endswith(b": "):
            os.write(terminal, sys.argv[1].encode() + b"\\n")
except OSError:
    pass  # how a terminal ends
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@dataclass
class Followed:
    """A folder where the commands of a page were typed, and servers that they started."""

    folder: Path
    ports: dict[str, str] = field(default_factory=dict)  # of the page -> free ones

    @property
    def environment(self) -> dict[str, str]:
        """Where `privsql` is found, and what is not to be asked for or changed."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "XDG_STATE_HOME": str(self.folder), "PGPASSWORD": PASSWORD}
        return {**os.environ, **own, "PSQLRC": os.devnull, "PGOPTIONS": ""}

    def here(self, text: str) -> str:
        """What a page says, with the ports and the password of this test."""
        for theirs, ours in self.ports.items():
            text = text.replace(theirs, ours)
        return text.replace("PASSWORD", PASSWORD.replace(" ", "%20"))

    def typed(self, line: str) -> str:
        """Run a line of a page in a shell; it must succeed."""
        asks = line.startswith("privsql user add") and "--password-stdin" not in line
        command = ["bash", "-c", self.here(line)]
        if asks:
            command = [sys.executable, "-c", TERMINAL, PASSWORD, *command]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment,
            timeout=120,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    @contextmanager
    def serving(self, line: str) -> Iterator[None]:
        """Start the server of a line, and stop it as the page says."""
        (theirs,) = re.findall(r":(\d+)\b", line)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.ports[theirs] = str(free.getsockname()[1])
        process = subprocess.Popen(
            shlex.split(self.here(line)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )
        banner = process.stdout.readline()
        try:
            assert self.ports[theirs] in banner, process.stderr.read()
            yield
        finally:
            process.terminate()
            _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said

    def follow(self, lines: list[str], running: ExitStack) -> None:
        for line in lines:
            if line.startswith("privsql serve "):
                running.enter_context(self.serving(line))
            else:
                self.typed(line)


def followed(folder: Path, path: Path, running: ExitStack) -> Followed:
    """Do what a page says; the README's Python blocks have made the files that are named."""
    for name in ("patients.csv", "rows.csv"):
        run(next(code for page, code, _ in python_blocks() if name in code), folder)
    (folder / "grafana.password").write_text(PASSWORD)
    made = Followed(folder)
    made.follow(commands_of(path, "privsql ", "openssl "), running)
    return made


@pytest.fixture(scope="module")
def bi(tmp_path_factory) -> Iterator[Followed]:
    with ExitStack() as running:
        yield followed(tmp_path_factory.mktemp("bi"), BI, running)


def needed(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def test_commands_of_the_readme_work_in_their_order(tmp_path):
    assert len(commands_of(README, "privsql ")) >= 7
    with ExitStack() as running:
        made = followed(tmp_path, README, running)
        needed("psql")
        (line,) = commands_of(README, "psql ")
        shown = "\n".join(row.rstrip() for row in made.typed(line).strip("\n").splitlines())
        assert f"```sh\n{line}\n```\n\n```\n{shown}\n```\n" in README.read_text()


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


def test_node_about_bi_tools(bi, request):
    needed("node")
    modules = Path(request.config.cache.mkdir("wire-clients")) / "node" / "node_modules"
    if not (modules / "pg").exists():
        pytest.skip("node-postgres is not installed: tests/wire/clients does that")
    ((_, code),) = [block for block in blocks(BI) if block[0] == "js"]
    done = subprocess.run(
        ["node", "-e", bi.here(code)],
        env={**os.environ, "NODE_PATH": str(modules)},
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


def test_no_other_command_stands_in_the_documents():
    # `pip install .` is run by test_packaging, in an environment of its own.
    known = ("make ", "privsql ", "pip install .", "psql ", "openssl ")
    assert [line for line in shell_lines() if not line.startswith(known)] == []
    for path in DOCUMENTS:
        if path not in (README, BI):
            assert commands_of(path, "privsql ", "psql ", "openssl ") == []


def test_every_command_and_option_is_documented():
    """Each command stands in the README, each option in its command's help."""
    from privsql.fronts.cli import main

    text = (ROOT / "README.md").read_text()
    for name, command in main.commands.items():
        assert f"privsql {name}" in text
        for parameter in getattr(command, "params", []):
            if parameter.param_type_name == "option":
                assert parameter.help, f"{name} {parameter.name} has no help"


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
        "states are lists; the transition matrix is the list of its factors, one a column, each a",
        "square matrix whose rows sum to one. The last column's cell changes fastest.",
        "NULL in gives NULL out; an end of an interval that cannot be told is NULL.",
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


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(path):
    printed = run(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')")
    assert printed


def test_the_demos_intervals_hold_the_truth():
    printed = run(f"import runpy; runpy.run_path({str(EXAMPLES[0])!r}, run_name='__main__')")
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

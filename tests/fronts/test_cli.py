"""The command line as a whole: how commands are found, fail, and behave on a terminal."""

from __future__ import annotations

import errno
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import privsql
from privsql.errors import OperationalError
from privsql.fronts.cli.common import Commands, Lazy
from privsql.fronts.cli.main import SECTIONS, main
from tests import programs
from tests.specs import public, sensitive, spec
from tests.sql.clinic import publish

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(sys.executable).with_name("privsql")
CLI = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "privsql.fronts.cli.main"]
FLU = "SELECT count(*) AS n FROM patients WHERE disease = 'flu'"
HEAVY = ("duckdb", "pandas", "numpy", "pyarrow", "scipy", "sqlglot", "rich", "matplotlib")
HEAVY = (*HEAVY, "prompt_toolkit", "cryptography", "asyncio")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("clinic"), 0.5, policy="refuse", least=10)


def environment(**more: str) -> dict[str, str]:
    """Ours without what says something about colour, in a terminal that has some."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **more}


def real(*words: str | Path, **more: str) -> tuple[int, str, str]:
    """The real command, in a process of its own and without a terminal."""
    done = programs.command([*map(str, words)], cwd=Path.cwd(), env=environment(**more))
    return done.returncode, done.stdout, done.stderr


def all_commands() -> Iterator[tuple[str, click.Command]]:
    for name, command in main.commands.items():
        yield name, command
        if isinstance(command, click.Group):
            for below, each in command.commands.items():
                yield f"{name} {below}", each


# -- what is imported ----------------------------------------------------------------------


@pytest.mark.parametrize("words", ["--version", "--help", "query --help", "pubish", "query"])
def test_nothing_heavy_is_imported_before_it_is_needed(words):
    code = (
        "import sys\nfrom privsql.fronts.cli.main import main\n"
        f"try: main({words.split()!r})\n"
        f"except SystemExit: print('loaded', [m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.stdout.endswith("loaded []\n"), done.stdout + done.stderr


def test_a_command_imports_no_other():
    code = (
        "import sys\nfrom privsql.fronts.cli.main import main\nmain.commands['query']\n"
        "package = 'privsql.fronts.cli.commands.'\n"
        "print([name for name in sys.modules if name.startswith(package)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.stdout == "['privsql.fronts.cli.commands.query']\n", done.stderr


# -- help ----------------------------------------------------------------------------------


def test_the_version():
    assert real("--version") == (0, f"privsql, version {privsql.__version__}\n", "")


def test_commands_stand_in_the_order_in_which_people_meet_them():
    text = CliRunner().invoke(main, ["-h"]).stdout
    listed = re.findall(r"^  ([a-z]+) {2,}\S", text, re.MULTILINE)
    assert listed == [
        name for names in SECTIONS.values() for name in names if name in main.commands
    ]
    assert [h for h in SECTIONS if f"\n{h}:\n" in text] == list(SECTIONS)


@pytest.mark.parametrize("name", [name for name, _ in all_commands()])
def test_every_help_has_an_example_that_names_the_command(name):
    command = dict(all_commands())[name]
    for flag in ("-h", "--help"):
        done = CliRunner().invoke(main, [*name.split(), flag], prog_name="privsql")
        assert done.exit_code == 0
        assert re.search(r"^  Examples?:\n    ", done.stdout, re.MULTILINE), done.stdout
        assert f"privsql {name}" in done.stdout.partition("Example")[2]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.name} has no help"
            # A default is said as [default: ...] or in a sentence, never as a bare word.
            assert re.search(r"(\.|\[default: .+\])$", parameter.help), f"{name}: {parameter.help}"
            assert ("-o" in parameter.opts) == ("--output" in parameter.opts)
            assert ("-f" in parameter.opts) == ("--file" in parameter.opts)
            assert ("-i" in parameter.opts) == ("--input" in parameter.opts)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["pubish"], "No such command 'pubish'. Did you mean 'publish'?"),
        (["key", "nwe"], "No such command 'nwe'. Did you mean 'new'?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
        (["query", "r.duckdb", "--formt", "csv"], "--format"),
        (["query"], "Missing argument 'RELEASE'"),
    ],
)
def test_what_is_typed_wrongly(typed, said):
    done = CliRunner().invoke(main, typed, prog_name="privsql")
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.startswith("Usage: privsql ")


# -- exit codes, streams, colour -----------------------------------------------------------


def test_exit_codes_and_streams(release):
    code, out, said = real("query", release, f"{FLU}; SELECT nope FROM patients")
    assert code == 1
    assert re.fullmatch(r" n\n-+\n [\d,]+ ± \d+\n1 row; .*\n±: .*\n", out), out
    assert said.startswith('ERROR 42703 [unknown-name]: Referenced column "nope" not found')
    assert real("query", release, "--format", "xml")[0] == 2


def on_a_terminal(*words: str | Path, **more: str) -> tuple[int, str, str]:
    """Stdout is a terminal and stderr is not."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [*CLI, *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**more),
        ) as child:
            os.close(theirs)
            theirs = -1
            heard = b""
            while True:
                try:
                    part = os.read(ours, 10_000)
                except OSError:  # how Linux says that the other side was closed
                    part = b""
                if not part:
                    break
                heard += part
            said = child.stderr.read()
            code = child.wait(120)
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    return code, heard.decode().replace("\r\n", "\n"), said


def test_colour_is_for_terminals_that_want_it(release):
    code, coloured, said = on_a_terminal("query", release, FLU)
    assert (code, said) == (0, "")
    assert re.search(r"\x1b\[36m[\d,]+ ± \d+\x1b\[0m", coloured), coloured
    code, plain, said = on_a_terminal("query", release, FLU, NO_COLOR="1")
    assert (code, said) == (0, "")
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert "\x1b" not in plain


def test_a_terminal_is_asked_for_nothing_and_given_no_parquet(release):
    code, out, said = on_a_terminal("query", release)
    assert (code, out) == (2, "")
    assert "There is no SQL" in said
    code, out, said = on_a_terminal("query", release, FLU, "--format", "parquet")
    assert (code, out) == (2, "")
    assert "cannot be written to a terminal" in said


def test_a_terminal_without_the_letters_gets_others(release):
    words = ["query", str(release), "SELECT 'é 漢' AS x"]
    done = CliRunner(charset="latin-1").invoke(main, words)
    assert done.exit_code == 0
    assert b"\n \xe9 \\u6f22\n" in done.stdout_bytes
    # What is for programs is UTF-8 always.
    done = CliRunner(charset="latin-1").invoke(main, [*words, "--format", "csv"])
    assert (done.exit_code, done.stdout_bytes) == (0, "x\né 漢\n".encode())


def test_a_reader_that_has_seen_enough_is_no_error(release):
    # More than a pipe holds.
    sql = f"SELECT '{'x' * 1_000_000}' AS x"
    with subprocess.Popen(
        [*CLI, "query", str(release), "--format", "json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as child:
        child.stdin.write(sql)
        child.stdin.close()
        assert child.stdout.readline() == "[\n"
        child.stdout.close()
        assert child.stderr.read() == ""
        assert child.wait(120) == 1


ENDLESS = """
import sys
from privsql.session import session
sql = "SELECT count(*) FROM range(10000000) a(i), range(10000000) b(j) WHERE hash(i, j) % 7 = 3"
def run(self, *_, **__):
    print("asked", flush=True)
    return self._engine.scan(sql)
session.Session.run = run
from privsql.fronts.cli.main import main
main()
"""


def test_ctrl_c_ends_a_question(release, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, "query", str(release), FLU, "-o", str(tmp_path / "a.csv")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as child:
        try:
            assert child.stdout.readline() == "asked\n"
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=60)
        finally:
            child.kill()
    assert said == "interrupted; nothing was changed\n"
    assert child.returncode == 1
    assert list(tmp_path.iterdir()) == []


# -- the group -----------------------------------------------------------------------------


def failing(problem: BaseException) -> Commands:
    group = Commands("group")

    @group.command("fail")
    def fail() -> None:
        raise problem

    return group


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (OperationalError("no", hint="yes"), "ERROR 58000 [operational]: no\nHINT: yes\n"),
        (
            PermissionError(errno.EACCES, "Permission denied", "a.csv"),
            "ERROR 58000 [operational]: a.csv: permission denied\n",
        ),
        (OSError(errno.ENOSPC, "No space left"), "ERROR 58000 [operational]: no space left\n"),
        (KeyboardInterrupt(), "interrupted; nothing was changed\n"),
        (RuntimeError("Query interrupted"), "interrupted; nothing was changed\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), ""),
    ],
)
def test_how_a_command_fails(problem, said):
    done = CliRunner().invoke(failing(problem), ["fail"])
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", said)


def test_a_bug_has_a_traceback():
    assert isinstance(
        CliRunner().invoke(failing(ZeroDivisionError()), ["fail"]).exception, Exception
    )


def test_commands_are_loaded_when_they_are_wanted():
    lazy = Lazy({"a": "privsql.fronts.cli.commands.key:key", "b": "no.such.module:at_all"})
    assert list(lazy) == ["a", "b"]
    assert "b" in lazy
    assert lazy["a"].name == "key"
    with pytest.raises(ModuleNotFoundError):
        lazy["b"]
    assert lazy.get("c") is None
    del lazy["b"]
    lazy["d"] = lazy["a"]
    assert [lazy[name].name for name in lazy] == ["key", "key"]
    assert len(lazy) == 2


# -- init ----------------------------------------------------------------------------------


def test_init_overwrites_only_by_force(tmp_path):
    source, spec = tmp_path / "rows.csv", tmp_path / "spec.toml"
    source.write_text("city,illness\n" + "north,flu\nsouth,none\n" * 50)
    runner = CliRunner()
    done = runner.invoke(main, ["init", str(source), "-o", str(spec)])
    assert (done.exit_code, done.stdout.startswith(f"wrote {spec}")) == (0, True)
    text = spec.read_text()
    for way in ([], ["-o", "-"]):
        assert runner.invoke(main, ["init", str(source), *way]).stdout == text
    spec.write_text("mine")
    done = runner.invoke(main, ["init", str(source), "-o", str(spec)])
    assert (done.exit_code, spec.read_text()) == (1, "mine")
    assert "exists already\nHINT: choose another name, or overwrite it with --force" in done.stderr
    assert runner.invoke(main, ["init", str(source), "-o", str(spec), "--force"]).exit_code == 0
    assert spec.read_text() == text
    done = runner.invoke(main, ["init", str(source), "-o", str(source), "--force"])
    assert (done.exit_code, "is an input of this command" in done.stderr) == (1, True)
    assert runner.invoke(main, ["init", str(tmp_path / "none.csv"), "-o", "x.toml"]).exit_code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "spec.toml"]


# -- perturb -------------------------------------------------------------------------------

PERTURBED = spec("patients", public("city"), sensitive("illness", 0.5, ["flu", "none"]))


def test_perturb_overwrites_only_by_force_and_never_what_it_reads(tmp_path):
    rows, spec, batch = (tmp_path / name for name in ("rows.csv", "spec.toml", "batch.csv"))
    rows.write_text("city,illness\nnorth,flu\n")
    spec.write_text(PERTURBED)
    command = ["perturb", str(spec), "--accept-public", "city", "-i", str(rows), "-o"]
    runner = CliRunner()
    for target in (rows, spec):
        before = target.read_text()
        for more in ([], ["--force"]):
            done = runner.invoke(main, [*command, str(target), *more])
            assert (done.exit_code, "is an input of this command" in done.stderr) == (1, True)
            assert target.read_text() == before
    done = runner.invoke(main, [*command, str(batch)])
    assert done.exit_code == 0
    assert [line.split(" epsilon")[0] for line in done.stderr.splitlines()[:3]] == [
        "city: public, leaves as it is",
        "illness: perturbed,",
        "perturbed 1 row",
    ]
    first = batch.read_text()
    done = runner.invoke(main, [*command, str(batch)])
    assert (done.exit_code, batch.read_text()) == (1, first)
    assert "exists already\nHINT: choose another name, or overwrite it with --force" in done.stderr
    assert runner.invoke(main, [*command, str(batch), "--force"]).exit_code == 0
    assert batch.read_text() != first  # a batch has a number of its own
    assert runner.invoke(main, [*command, "-"]).stdout.startswith("# privsql batch")


# -- completion ----------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """What the shell is told about the last of the words."""
    code, out, said = real(
        _PRIVSQL_COMPLETE="bash_complete",
        COMP_WORDS=" ".join(["privsql", *words]),
        COMP_CWORD=str(len(words)),
    )
    assert (code, said) == (0, "")
    return out.split()


@pytest.mark.skipif(not SCRIPT.exists(), reason="completion goes by the name of the script")
def test_commands_options_and_files_complete():
    assert completed("que") == ["plain,query"]
    assert completed("completion", "z") == ["plain,zsh"]
    assert completed("query", "--form") == ["plain,--format"]
    assert completed("query", "x.duckdb", "--format", "p") == ["plain,parquet"]
    assert completed("query", "x") == ["file,x"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_for_its_shell(shell):
    done = CliRunner().invoke(main, ["completion", shell], prog_name="something-else")
    assert done.exit_code == 0
    assert f"_PRIVSQL_COMPLETE={shell}_complete" in done.stdout
    assert "_privsql_completion" in done.stdout
    assert "something" not in done.stdout


@pytest.mark.skipif(
    not (shutil.which("bash") and SCRIPT.exists()), reason="there is no bash, or no script"
)
def test_bash_completes_a_command():
    text = (
        'eval "$(privsql completion bash)"; COMP_WORDS=(privsql expl); COMP_CWORD=1\n'
        '_privsql_completion privsql; echo "${COMPREPLY[@]}"; complete -p privsql'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(PATH=f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"),
    )
    assert done.stdout.splitlines()[0] == "explain", done.stderr
    assert "_privsql_completion" in done.stdout

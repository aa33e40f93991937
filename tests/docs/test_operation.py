"""docs/operation.md is followed, and its files in examples/operation are valid."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from privsql.fronts.cli.common import HELP
from privsql.fronts.cli.main import main
from tests.docs.pages import ROOT, Step, lines_of, read, stripped
from tests.docs.serving import Followed, needed

PAGE = ROOT / "docs" / "operation.md"
FILES = ROOT / "examples" / "operation"
STATUS = "9187"
# What a test can type; each other line of a page stands in a block that is not run.
TYPED = ("privsql ", "psql ", "curl ", "mv ", "openssl ")


def free() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return str(found.getsockname()[1])


def test_the_page_is_true(tmp_path):
    needed("psql")
    (tmp_path / "rows.py").write_text(
        next(step.code for step in read(ROOT / "README.md").steps if "rows.csv" in step.code)
    )
    subprocess.run([sys.executable, "rows.py"], cwd=tmp_path, check=True, capture_output=True)
    made, told = Followed(tmp_path, {STATUS: free()}), []
    with ExitStack() as running:
        for step in read(PAGE).steps:
            printed = "".join(typed(made, line, running) for line in lines_of(step.code))
            check(step, printed)
            told.append(printed)
    assert "ready\n" in told[0]
    (text,) = [each for each in told if each.startswith("# HELP")]
    metrics = {family.name for family in text_string_to_metric_families(text)}
    named = re.findall(r"`(p\w+?)(?:_total)?(?:\{[^`]*)?`", metric_table())
    assert sorted(named) == sorted(metrics)


def typed(made: Followed, line: str, running: ExitStack) -> str:
    assert line.startswith(TYPED), f"no test runs {line!r}"
    if line.startswith("privsql serve "):
        running.enter_context(made.serving(line))
        return ""
    if line.startswith("mv "):  # the page says that the server has stopped
        running.close()
    if line.startswith("curl ") and shutil.which("curl") is None:
        return urllib.request.urlopen(made.here(line.split()[-1])).read().decode()
    return made.typed(line)


def check(step: Step, printed: str) -> None:
    if step.output is not None:
        timeless = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+\+00:00", "TIME", printed)
        assert stripped(timeless) == stripped(step.output), str(step)


def metric_table() -> str:
    """The table of metrics, without their meanings."""
    table = PAGE.read_text().partition("| metric | |\n")[2].partition("\n\n")[0]
    return "\n".join(line.split("|")[1] for line in table.splitlines()[1:])


# -- systemd -------------------------------------------------------------------------------


def units(folder: Path) -> None:
    """The units, with the program where it is on this machine."""
    program = Path(sys.executable).with_name("privsql")
    for path in FILES.glob("privsql*.*"):
        text = path.read_text().replace("/opt/privsql/bin/privsql", str(program))
        (folder / path.name).write_text(text)


def settings(name: str) -> dict[str, list[str]]:
    """The settings of a unit, each with all that was said; a line that ends in \\ goes on."""
    found: dict[str, list[str]] = {}
    for line in (FILES / name).read_text().replace("\\\n", " ").splitlines():
        if line and not line.startswith(("#", "[")):
            key, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(key, []).append(value)
    return found


def test_systemd_accepts_the_units(tmp_path):
    needed("systemd-analyze")
    units(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["privsql-backup.service", "privsql-backup.timer", "privsql.service"]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("unit", "most"), [("privsql.service", 1.5), ("privsql-backup.service", 2)]
)
def test_the_units_are_hardened(tmp_path, unit, most):
    """As systemd reckons: 10 is a service that may do anything."""
    needed("systemd-analyze")
    units(tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure, done.stderr
    assert float(exposure[1]) <= most
    if unit == "privsql.service":
        assert f"calls its exposure {exposure[1]} of 10" in PAGE.read_text().replace("\n", " ")


@pytest.mark.parametrize("unit", ["privsql.service", "privsql-backup.service"])
def test_the_commands_of_the_units_are_commands(unit):
    (line,) = settings(unit)["ExecStart"]
    words = shlex.split(line)
    if words[0] == "/bin/sh":
        assert "$(date -u +%%Y%%m%%dT%%H%%M%%S)" in words[2]  # systemd reads %% as %
        words = shlex.split(words[2])[1:]
    parsed(words, "/opt/privsql/bin/privsql")


def test_the_unit_limits_what_it_may_use_and_see():
    found = {key: values[-1] for key, values in settings("privsql.service").items()}
    assert found["User"] == "privsql"
    assert {"MemoryMax", "TasksMax", "LimitNOFILE", "StateDirectory"} <= set(found)
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "RestrictNamespaces"):
        assert found[name] == "yes"
    assert found["ProtectSystem"] == "strict"
    assert found["CapabilityBoundingSet"] == ""


def parsed(words: list[str], program: str) -> dict[str, object]:
    """A command as click reads it: every option exists and has a value that it can have."""
    assert words[0] == program
    command, rest = main, words[1:]
    context = click.Context(main)
    while isinstance(command, click.Group):
        command, rest = command.get_command(context, rest[0]), rest[1:]
        assert command is not None
    # click keeps the first help option of a command: it must be the one that programs get.
    return command.make_context(command.name, rest, parent=None, **HELP).params


# -- the container -------------------------------------------------------------------------


def instructions() -> Iterator[tuple[str, str]]:
    for line in (FILES / "Containerfile").read_text().replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, rest


def test_the_container_file_has_what_it_names():
    found = list(instructions())
    known = "FROM WORKDIR COPY RUN ENV USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD"
    assert {word for word, _ in found} <= set(known.split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word, rest in found:
        if word == "FROM":
            version = re.match(r"python:(3\.\d+)-slim", rest)
            assert f"Programming Language :: Python :: {version[1]}" in project["classifiers"]
        if word == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            assert target.startswith("./")
            assert [name for name in sources if not (ROOT / name).exists()] == []
        if word == "RUN":
            assert subprocess.run(["sh", "-n", "-c", rest], check=False).returncode == 0
    # What the wheel is built from is copied, the readme and the licence included.
    copied = " ".join(rest for word, rest in found if word == "COPY")
    for name in ("pyproject.toml", project["readme"], *project["license-files"], "privsql", "udfs"):
        assert name in copied.split()
    assert "server" in project["optional-dependencies"]
    users = [rest for word, rest in found if word == "USER"]
    assert users == ["privsql"]


def test_the_container_starts_a_server_that_its_health_check_asks():
    last = dict(instructions())
    words = [*json.loads(last["ENTRYPOINT"]), *json.loads(last["CMD"])]
    given = parsed(words, "privsql")
    assert given["listen"] == ("0.0.0.0", int(last["EXPOSE"]))
    assert given["status"] == ("127.0.0.1", int(STATUS))
    assert given["require_tls"]
    volumes = json.loads(last["VOLUME"])
    assert str(given["mark"].parent) in volumes
    assert "STATE_DIRECTORY=/var/lib/privsql " in last["ENV"]
    assert volumes[0] == "/var/lib/privsql"
    check = json.loads(last["HEALTHCHECK"].partition("CMD ")[2])
    assert check[:2] == ["python", "-c"]
    port = free()
    code = check[2].replace(STATUS, port)
    assert code != check[2]
    # Without a server it fails, so that an engine sees it.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 1
    from tests.fronts.pgwire.test_status import alone, ok

    with alone(health=ok) as (_, there, _):
        code = check[2].replace(STATUS, str(there))
        subprocess.run([sys.executable, "-c", code], check=True)

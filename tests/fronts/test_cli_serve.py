"""`privsql serve` and `privsql user`: the real server as a process, and psycopg."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import privsql
from privsql.errors import OperationalError
from privsql.fronts.cli.main import main
from privsql.fronts.cli.process import state_folder
from tests import specs
from tests.policy.journals import read
from tests.sql.clinic import publish

CLI = [sys.executable, "-m", "privsql.fronts.cli.main"]
SMALL = ["--memory", "400MB", "--threads", "1", "--workers", "2", "--look-every", "0"]
WHOLE = "SELECT count(*) FROM patients WHERE disease = 'flu'"
REST = f"{WHOLE} AND NOT (job = 'eng' AND gender = 'F' AND favourite = 'flu')"
VISITS = specs.spec(
    "visits",
    specs.public("ward"),
    specs.sensitive("stayed", 0.5, ["long", "short"]),
    source="{source}",
)


def privsql_(*arguments: str | Path, given: str | None = None, **more: str) -> tuple[int, str, str]:
    """The command in this process: it ends before any server of its own would run."""
    done = CliRunner().invoke(
        main, [*map(str, arguments)], input=given, env=more, prog_name="privsql"
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def real(*arguments: str | Path, given: str | None = None, **more: str) -> tuple[int, str, str]:
    """The command in a process of its own, for what only that can show."""
    done = subprocess.run(
        [*CLI, *map(str, arguments)],
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **more},
    )
    return done.returncode, done.stdout, done.stderr


@dataclass
class Served:
    """A server that listens."""

    process: subprocess.Popen[str]
    banner: str
    port: int
    said: Path

    def connect(self, user: str = "ann", **more: str) -> psycopg.Connection[tuple[object, ...]]:
        given = {"password": f"{user}'s secret", "dbname": "privsql", "connect_timeout": "30"}
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=user, autocommit=True, **{**given, **more}
        )

    def ask(self, text: str, user: str = "ann", **more: str) -> list[tuple[object, ...]]:
        with self.connect(user, **more) as connection:
            return connection.execute(text).fetchall()

    def until(self, words: str) -> str:
        """Wait for the server to say something on stderr."""
        for _ in range(600):
            if words in (text := self.said.read_text()):
                return text
            time.sleep(0.05)
        raise AssertionError(f"the server never said {words!r}: {self.said.read_text()}")

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def ended(self) -> int:
        return self.process.wait(60)


@contextlib.contextmanager
def served(
    folder: Path, *arguments: str | Path, listen: str = "127.0.0.1:0", prefix: Sequence[str] = ()
) -> Iterator[Served]:
    said = folder / f"stderr-{time.monotonic_ns()}"
    with said.open("w") as errors:
        process = subprocess.Popen(
            [*prefix, *CLI, "serve", "--listen", listen, *SMALL, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
        )
    try:
        banner = process.stdout.readline()
        port = re.match(r"privsql listens on \S+?:(\d+): ", banner)
        assert port, said.read_text()
        yield Served(process, banner, int(port[1]), said)
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


@pytest.fixture(scope="module")
def patients(tmp_path_factory) -> Path:
    return publish(tmp_path_factory.mktemp("patients"), 0.5, policy="refuse", least=10)


@pytest.fixture(scope="module")
def visits(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("visits")
    rows = "".join(f"{'ab'[i % 2]},{'long' if i % 3 else 'short'}\n" for i in range(500))
    (folder / "rows.csv").write_text("ward,stayed\n" + rows)
    (folder / "spec.toml").write_text(VISITS.format(source=folder / "rows.csv"))
    privsql.publish(None, folder / "visits.duckdb", spec=folder / "spec.toml", seed=1)
    return folder / "visits.duckdb"


@pytest.fixture(scope="module")
def users(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.json"
    for name, *releases in (["ann"], ["bob", "--release", "visits"]):
        given = ["user", "add", name, "--users", path, *releases, "--password-stdin"]
        assert privsql_(*given, given=f"{name}'s secret\n")[0] == 0
    return path


@pytest.fixture(scope="module")
def server(patients, visits, users, tmp_path_factory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served"), patients, visits, "--users", users) as made:
        yield made


# -- users -----------------------------------------------------------------------------------


def test_users_are_added_listed_and_removed(tmp_path):
    path = tmp_path / "users.json"
    add = ["user", "add", "ann", "--users", path, "--password-stdin"]
    assert real(*add, given="open sesame\r\n") == (0, "added ann: all releases\n", "")
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "sesame" not in text
    assert '"SCRAM-SHA-256$' in text

    code, _, said = privsql_(*add, given="other")
    assert (code, path.read_text()) == (1, text)
    assert said.startswith("ERROR ")
    assert "--force" in said
    changed = privsql_(*add, "--force", "--release", "a", "--release", "b", given="other")
    assert changed == (0, "changed ann: a, b\n", "")
    assert path.read_text() != text

    assert privsql_("user", "list", "--users", path) == (0, "ann: a, b\n", "")
    assert privsql_("user", "remove", "ann", "--users", path) == (0, "removed ann\n", "")
    code, _, said = privsql_("user", "remove", "ann", "--users", path)
    assert (code, said.splitlines()[0].endswith("there is no user ann")) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "given", "code", "words"),
    [
        (["add", "ann"], "one\ntwo\n", 1, "more than one line"),
        (["add", "ann"], "\n", 1, "a password has between 1"),
        (["add", "a\nb"], "x", 1, "printable characters"),
        (["add", "ann", "--password", "x"], "x", 2, "No such option"),
        (["add", "ann", "x"], "x", 2, "unexpected extra argument"),
        (["list"], None, 1, "there is no users file"),
        (["remove", "ann"], None, 1, "there is no users file"),
    ],
)
def test_mistakes_about_users(tmp_path, arguments, given, code, words):
    path = tmp_path / "users.json"
    more = ["--password-stdin"] if arguments[0] == "add" else []
    found, _, said = privsql_("user", *arguments, "--users", path, *more, given=given)
    assert (found, words in said) == (code, True), said
    assert code == 2 or said.startswith("ERROR ")
    assert not path.exists()


def test_without_a_terminal_nobody_is_asked_for_a_password(tmp_path):
    code, _, said = privsql_("user", "add", "ann", "--users", tmp_path / "u", given="x\n")
    assert (code, "--password-stdin" in said) == (1, True)


def test_the_password_is_asked_for_twice_and_not_shown(tmp_path):
    """On a terminal of its own, which shows what was typed unless it was told not to."""
    program = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    command = [sys.executable, "-c", program, *CLI, "user", "add", "ann", "--users", "u"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path, bufsize=0
    ) as process:
        seen = ""
        for prompt in ("Password: ", "Repeat for confirmation: "):
            while not seen.endswith(prompt):
                part = process.stdout.read(1)
                assert part, seen
                seen += part
            process.stdin.write("open sesame\n")
        seen += process.stdout.read()
    assert process.returncode == 0, seen
    assert "added ann" in seen
    assert "sesame" not in seen


# -- who is let in ---------------------------------------------------------------------------


def test_the_banner_says_where_what_and_under_which_policy(server, patients):
    assert server.banner == (
        f"privsql listens on 127.0.0.1:{server.port}: database privsql with patients"
        " (personal_groups refuse, min_rows 10, differences check, rows deny), visits"
        " (personal_groups refuse, min_rows 10, differences check, rows deny);"
        " SCRAM-SHA-256, no TLS\n"
    )
    folder = server.said.parent / "state" / "privsql"
    assert (
        f"history in {folder}/history, audit log in {folder}/audit.log" in server.said.read_text()
    )
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "history").stat().st_mode & 0o777 == 0o600


def test_the_right_password_and_wrong_ones(server):
    assert server.ask("SELECT count(*) FROM patients") == [(4000,)]
    said = []
    for user, password in (("ann", "wrong"), ("ann", ""), ("eve", "ann's secret")):
        with pytest.raises(psycopg.OperationalError) as problem:
            server.connect(user, password=password or "\0x"[1:])
        said.append(str(problem.value).replace(user, "USER"))
    # An unknown user hears what a wrong password hears.
    assert len(set(said)) == 1
    assert 'password authentication failed for user "USER"' in said[0]


def test_users_see_their_releases_only(server):
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    assert sorted(server.ask(tables)) == [("patients",), ("visits",)]
    assert server.ask(tables, "bob") == [("visits",)]
    assert server.ask("SELECT count(*) FROM visits", "bob", dbname="visits") == [(500,)]
    with server.connect("bob") as bob:
        said = []
        for name in ("patients", "nosuch99"):
            with pytest.raises(psycopg.errors.UndefinedTable) as problem:
                bob.execute(f"SELECT count(*) FROM {name}")
            said.append(str(problem.value).replace(name, "TABLE"))
        assert said[0] == said[1]
    said = []
    for name in ("patients", "nosuch99"):
        with pytest.raises(psycopg.OperationalError) as problem:
            server.connect("bob", dbname=name)
        said.append(str(problem.value).replace(name, "DATABASE"))
    assert said[0] == said[1]


def test_users_come_and_go_while_the_server_runs(server, users):
    add = ["user", "add", "cat", "--users", users, "--password-stdin"]
    assert privsql_(*add, given="cat's secret")[0] == 0
    assert server.ask("SELECT 1", "cat") == [(1,)]
    assert privsql_("user", "remove", "cat", "--users", users)[0] == 0
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        server.connect("cat")


def test_every_statement_is_in_the_log(server):
    refused = "SELECT count(*) FROM patients WHERE job = 'eng' AND gender = 'F' AND favourite ="
    with server.connect() as ann:
        ann.execute("SELECT job, avg(age) FROM patients GROUP BY job")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ann.execute(f"{refused} 'flu' AND disease = 'hiv'")
    entries = list(read(server.said.parent / "state" / "privsql" / "audit.log"))[-2:]
    assert [(e.user, e.decision, e.reason, e.tables) for e in entries] == [
        ("ann", "answered", "", ("patients",)),
        ("ann", "refused", "personal-group", ("patients",)),
    ]
    assert "favourite = 'flu' AND disease = 'hiv'" in entries[1].statement


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def test_tls_is_required_and_a_new_certificate_is_read_at_sighup(visits, users, tmp_path):
    cert, key = certificate(tmp_path, "first")
    given = ["--users", users, "--tls-cert", cert, "--tls-key", key, "--require-tls"]
    other, other_key = certificate(tmp_path, "second")
    full = {"sslmode": "verify-full", "channel_binding": "require"}
    # Reachable from other machines: this is what it takes.
    with served(tmp_path, visits, *given, listen="0.0.0.0:0") as server:
        assert server.banner.endswith("; SCRAM-SHA-256, TLS required\n")
        with pytest.raises(psycopg.OperationalError, match="must be encrypted"):
            server.connect(sslmode="disable")
        old = shutil.copy(cert, tmp_path / "old.crt")
        assert server.ask("SELECT 1", sslrootcert=str(old), **full) == [(1,)]
        with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
            server.connect(sslrootcert=str(other), **full)

        cert.write_text("nothing")
        server.signal(signal.SIGHUP)
        server.until("SIGHUP: the certificate or its key cannot be used; the server continues")
        assert server.ask("SELECT 1", sslrootcert=str(old), **full) == [(1,)]

        shutil.copy(other, cert)
        shutil.copy(other_key, key)
        server.signal(signal.SIGHUP)
        server.until("SIGHUP: no changes")
        assert server.ask("SELECT 1", sslrootcert=str(other), **full) == [(1,)]


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
@pytest.mark.parametrize("missing", ["all", "tls", "required", "users", "once"])
def test_an_address_of_other_machines_is_refused(visits, users, tmp_path, host, missing):
    cert, key = certificate(tmp_path, "some")
    tls = ["--tls-cert", cert, "--tls-key", key]
    given = {
        "all": [],
        "tls": ["--users", users],
        "required": ["--users", users, *tls],
        "users": [*tls, "--require-tls"],
        "once": ["--insecure"],
    }[missing]
    code, out, said = privsql_(
        "serve", visits, "--listen", f"{host}:0", *given, XDG_STATE_HOME=str(tmp_path / "state")
    )
    assert (code, out) == (1, "")
    assert said.startswith("ERROR ")
    assert "can be reached from other machines" in said
    assert "--insecure twice" in said
    assert not (tmp_path / "state").exists()


def test_it_is_accepted_when_said_twice(visits, tmp_path):
    with served(tmp_path, visits, "--insecure", "--insecure", listen="0.0.0.0:0") as server:
        assert server.banner.endswith("; no passwords, no TLS\n")
        assert "WARNING: there are no passwords" in server.said.read_text()
        assert server.ask("SELECT count(*) FROM visits", "anybody") == [(500,)]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "Missing argument"),
        (["visits", "--listen", "5433"], 2, "give host:port"),
        (["visits", "--listen", ":5433"], 2, "give host:port"),
        (["visits", "--listen", "::1:5433"], 2, "give host:port"),
        (["visits", "--listen", "127.0.0.1:70000"], 2, "give host:port"),
        (["visits", "--memory", "lots"], 2, "512MB"),
        (["visits", "--tls-key", "k"], 2, "--tls-key needs --tls-cert"),
        (["nosuch.duckdb"], 1, "there is no release at nosuch.duckdb"),
        (["visits", "visits"], 1, "two releases are called visits"),
        (["visits", "--users", "nosuch.json"], 1, "there is no users file"),
        (["visits", "--tls-cert", "nosuch.crt"], 1, "certificate or its key"),
        (["visits", "--require-tls"], 1, "TLS cannot be required"),
        (["visits", "--history", "nosuch/history"], 1, "nosuch/history: "),
        (["visits", "--log", "nosuch/log"], 1, "nosuch/log: "),
        (["visits", "--listen", "127.0.0.1:{port}"], 1, "cannot listen on 127.0.0.1:"),
    ],
)
def test_mistakes_about_a_server(server, visits, tmp_path, arguments, code, words):
    given = [str(visits) if a == "visits" else a.format(port=server.port) for a in arguments]
    # The first and the last as commands of their own: they end as those in this process do.
    command = real if not arguments or "{port}" in arguments[-1] else privsql_
    found, out, said = command("serve", *given, XDG_STATE_HOME=str(tmp_path))
    assert (found, out, words in said) == (code, "", True), said
    assert "Traceback" not in said
    assert code == 2 or re.search("^ERROR ", said, re.MULTILINE)


# -- history, log, files -----------------------------------------------------------------------


def test_the_history_survives_a_restart(patients, users, tmp_path):
    for question, answered in ((WHOLE, True), (REST, False)):
        with served(tmp_path, patients, "--users", users) as server:
            if answered:
                assert len(server.ask(question)) == 1
            else:
                with pytest.raises(psycopg.errors.InsufficientPrivilege) as problem:
                    server.ask(question)
                assert "difference" in problem.value.diag.message_detail
            server.signal(signal.SIGTERM)
            assert server.ended() == 0
    # Somewhere else nothing was answered: it is this file that remembers.
    with served(tmp_path, patients, "--users", users, "--history", tmp_path / "new") as server:
        assert len(server.ask(REST)) == 1


def test_where_the_files_are(tmp_path, monkeypatch):
    own, state, home = tmp_path / "own", tmp_path / "state", tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    assert state_folder() == home / ".local" / "state" / "privsql"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    assert state_folder() == state / "privsql"
    monkeypatch.setenv("STATE_DIRECTORY", f"{own}:{tmp_path / 'more'}")
    assert state_folder() == own
    (tmp_path / "file").touch()
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "file" / "under"))
    with pytest.raises(OperationalError, match="no folder") as problem:
        state_folder()
    assert problem.value.hint == "give --history and --log"


def test_another_name_is_no_way_out_where_no_name_is_proven(patients, tmp_path):
    with served(tmp_path, patients) as server:
        assert len(server.ask(WHOLE, "ann")) == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            server.ask(REST, "bob")


@pytest.mark.parametrize("sync", [(), ("--log-sync",)])
def test_a_kill_loses_no_line_that_was_acknowledged(patients, users, tmp_path, sync):
    acknowledged: set[str] = set()
    log = tmp_path / "log"

    def asks(server: Served, first: int) -> None:
        with contextlib.suppress(psycopg.OperationalError), server.connect() as connection:
            for i in range(first, 10_000, 4):
                connection.execute(f"SELECT count(*) FROM patients WHERE cost > {i}")
                acknowledged.add(str(i))

    with served(tmp_path, patients, "--users", users, "--log", log, *sync) as server:
        threads = [threading.Thread(target=asks, args=(server, first)) for first in range(4)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 40 and all(thread.is_alive() for thread in threads):
            time.sleep(0.01)
        server.signal(signal.SIGKILL)
        for thread in threads:
            thread.join(60)
    logged = {re.search(r"cost > (\d+)", entry.statement)[1] for entry in read(log)}
    assert len(acknowledged) >= 40
    assert acknowledged <= logged
    # What was written last was on its way: at most one statement a connection.
    assert len(logged - acknowledged) <= 4


def test_no_right_to_write_the_release_is_needed(visits):
    """As somebody who may only read it, in a folder where nothing can be made."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shelf, state = folder / "shelf", folder / "own"
        shelf.mkdir()
        state.mkdir()
        release = Path(shutil.copy(visits, shelf))
        release.chmod(0o444)
        shelf.chmod(0o555)
        prefix: list[str] = []
        if os.geteuid() == 0:  # whose powers over files are taken away for this
            os.chown(release, 65534, 65534)
            powers = "-dac_override,-dac_read_search,-fowner"
            prefix = ["setpriv", f"--bounding-set={powers}", "--inh-caps=-all"]
        before = release.read_bytes()
        try:
            with served(state, release, prefix=prefix) as server:
                assert server.ask("SELECT count(*) FROM visits") == [(500,)]
                server.signal(signal.SIGTERM)
                assert server.ended() == 0
            assert [each.name for each in shelf.iterdir()] == [release.name]
            assert release.read_bytes() == before
        finally:
            shelf.chmod(0o755)


# -- signals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_answer_under_way_ends_before_the_server_does(visits, tmp_path, number):
    with served(tmp_path, visits) as server:
        idle, busy = server.connect(), server.connect()
        found: list[object] = []
        thread = threading.Thread(
            target=lambda: found.append(busy.execute("SELECT pg_sleep(2), 7").fetchone()[1])
        )
        thread.start()
        time.sleep(0.5)  # until the statement is under way
        server.signal(number)
        server.until("the server stops when running statements have finished")
        with pytest.raises(psycopg.OperationalError):
            server.connect()
        thread.join(30)
        assert found == [7]
        assert server.ended() == 0
        with pytest.raises(psycopg.OperationalError, match="the server is shutting down"):
            idle.execute("SELECT 1")
        idle.close()
        busy.close()
        assert "the server has stopped" in server.said.read_text()


def test_an_answer_that_takes_too_long_is_ended(visits, tmp_path):
    with served(tmp_path, visits, "--stop-timeout", "0.5") as server, server.connect() as busy:
        threading.Timer(0.5, server.signal, [signal.SIGTERM]).start()
        begun = time.monotonic()
        # It is told so, not cut off.
        with pytest.raises((psycopg.errors.QueryCanceled, psycopg.errors.AdminShutdown)):
            busy.execute("SELECT pg_sleep(60)")
        assert server.ended() == 0
        assert time.monotonic() - begun < 20


def test_a_second_signal_stops_at_once(visits, tmp_path):
    with served(tmp_path, visits, "--stop-timeout", "100") as server, server.connect() as busy:
        threading.Timer(0.5, server.signal, [signal.SIGTERM]).start()
        stopper = threading.Timer(1.5, server.signal, [signal.SIGTERM])
        stopper.start()
        with pytest.raises(psycopg.OperationalError):
            busy.execute("SELECT pg_sleep(60)")
        assert server.ended() == -signal.SIGTERM
        stopper.join()
    # What it left is no hindrance to the next one.
    with served(tmp_path, visits) as server:
        assert server.ask("SELECT count(*) FROM visits") == [(500,)]


def test_sighup_serves_what_was_published_again(visits, tmp_path):
    release = Path(shutil.copy(visits, tmp_path / "visits.duckdb"))
    rows = "".join(f"{'ab'[i % 2]},long\n" for i in range(700))
    (tmp_path / "rows.csv").write_text("ward,stayed\n" + rows)
    (tmp_path / "spec.toml").write_text(VISITS.format(source=tmp_path / "rows.csv"))
    count = "SELECT count(*) FROM visits"
    with served(tmp_path, release) as server, server.connect() as connection:
        assert connection.execute(count).fetchall() == [(500,)]
        spec = ["publish", tmp_path / "spec.toml", "-o", release, "--force"]
        assert privsql_(*spec)[0] == 0
        assert connection.execute(count).fetchall() == [(500,)]  # nobody has said so yet
        server.signal(signal.SIGHUP)
        server.until("SIGHUP: now served: visits")
        # The connection was not dropped.
        assert connection.execute(count).fetchall() == [(700,)]
        release.write_bytes(b"no release")
        server.signal(signal.SIGHUP)
        server.until("SIGHUP: no changes")
        assert connection.execute(count).fetchall() == [(700,)]


def test_without_a_signal_it_is_seen_soon(visits, tmp_path):
    release = Path(shutil.copy(visits, tmp_path / "visits.duckdb"))
    with served(tmp_path, release, "--look-every", "0.2") as server:
        (tmp_path / "new").write_bytes(visits.read_bytes())
        (tmp_path / "new").replace(release)
        server.until("visits was published again and is served")


def test_a_release_that_is_not_there_leaves_nothing_behind(tmp_path):
    files = tmp_path / "history", tmp_path / "log"
    code, _, said = privsql_(
        "serve", tmp_path / "no.duckdb", "--history", files[0], "--log", files[1]
    )
    assert code == 1
    assert "there is no release at" in said
    assert not any(file.exists() for file in files)

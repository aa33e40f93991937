"""Health and metrics over HTTP: figures after known questions, and clients that misbehave."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from privsql.errors import OperationalError
from privsql.fronts.pgwire.status import endpoint as http_endpoint
from privsql.fronts.pgwire.status.endpoint import LONGEST, MOST, Endpoint, Page
from privsql.fronts.pgwire.status.pages import TEXT, resident_children, unchanged, writable
from tests.fronts.test_cli_serve import Served, privsql_, served
from tests.sql.clinic import publish

SAMPLES = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path)
    found = connection.getresponse()
    text = found.read().decode()
    connection.close()
    return found.status, dict(found.getheaders()), text


def samples(text: str) -> SAMPLES:
    """As Prometheus' own library reads them; each has a help text and a type."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for one in family.samples:
            key = (one.name, tuple(sorted(one.labels.items())))
            assert key not in found
            found[key] = one.value
    return found


def of(found: SAMPLES, name: str, **labels: str) -> float:
    return found.get((name, tuple(sorted(labels.items()))), 0.0)


def unauthenticated(port: int) -> float:
    return of(samples(get(port, "/metrics")[2]), "privsql_connections_unauthenticated")


# -- a server ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clinic(tmp_path_factory) -> Path:
    return publish(tmp_path_factory.mktemp("clinic"), 0.5, policy="refuse", least=10)


@pytest.fixture(scope="module")
def users(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.json"
    for name in ("ann", "zebulon"):
        added = privsql_(
            "user", "add", name, "--users", path, "--password-stdin", given=f"{name}'s secret\n"
        )
        assert added[0] == 0
    return path


@contextmanager
def watched(folder: Path, *arguments: str | Path) -> Iterator[tuple[Served, int]]:
    with served(folder, *arguments, "--status", "0") as made:
        (port,) = re.findall(r"; status on 127\.0\.0\.1:(\d+)$", made.banner.strip())
        yield made, int(port)


@pytest.fixture(scope="module")
def server(clinic, users, tmp_path_factory) -> Iterator[tuple[Served, int]]:
    with watched(tmp_path_factory.mktemp("status"), clinic, "--users", users) as made:
        yield made


def test_a_server_says_that_it_is_ready(server):
    _, port = server
    code, headers, text = get(port, "/health")
    assert (code, text) == (200, "ready\n")
    assert headers["Cache-Control"] == "no-store"
    assert get(port, "/health", "HEAD")[0] == 200
    assert get(port, "/health", "HEAD")[2] == ""


def test_figures_are_those_of_known_questions(server):
    made, port = server
    before = samples(get(port, "/metrics")[2])
    flu = "SELECT count(*) FROM patients WHERE disease = 'flu'"
    with made.connect() as connection:
        for _ in range(3):
            connection.execute(flu).fetchall()
        connection.execute("SELECT relname FROM pg_class").fetchall()
        connection.execute("SELECT 1").fetchall()
        connection.execute("SET application_name = 'x'")
        cells = "SELECT job, gender, favourite, count(*) FROM patients WHERE age < 40 GROUP BY ALL"
        connection.execute(cells).fetchall()
        for wrong, error in (
            (f"{flu} AND job = 'eng' AND gender = 'F' AND favourite = 'flu'", "42501"),
            ("SELECT * FROM patients", "42501"),
            ("SELECT max(age) FROM patients WHERE disease = 'flu'", "0A000"),
            ("SELECT nosuch FROM patients", "42703"),
            ("SELECT count(*) FROM WHERE", "42601"),
        ):
            with pytest.raises(psycopg.Error) as problem:
                connection.execute(wrong)
            assert problem.value.sqlstate.startswith(error)
        during = samples(get(port, "/metrics")[2])
    with pytest.raises(psycopg.OperationalError):
        made.ask("SELECT 1", password="wrong")
    with socket.create_connection(("127.0.0.1", made.port)):
        _until(lambda: unauthenticated(port) == 1)
    code, headers, text = get(port, "/metrics")
    assert (code, headers["Content-Type"]) == (200, TEXT)
    after = samples(text)

    def more(name: str, now: SAMPLES = after, **labels: str) -> float:
        return of(now, name, **labels) - of(before, name, **labels)

    def asked(kind: str, outcome: str) -> float:
        return more("privsql_questions_total", kind=kind, outcome=outcome)

    assert asked("query", "answered") == 4
    assert asked("query", "refused") == 3
    assert asked("catalog", "answered") == 1
    assert asked("constant", "answered") == 1
    assert more("privsql_cache_hits_total") == 2
    assert more("privsql_refusals_total", code="personal-group") == 1
    assert more("privsql_notices_total", code="personal-group") == 1
    # A group and rows, an extreme, an unknown column, a syntax error, a password.
    refused = sum(more(n, **dict(k)) for n, k in after if n == "privsql_refusals_total")
    assert refused == 3
    errors = [dict(keys) for name, keys in after if name == "privsql_errors_total"]
    classes = {each["class"]: more("privsql_errors_total", **each) for each in errors}
    assert {name: n for name, n in classes.items() if n} == {"42": 4, "0A": 1, "28": 1}
    # psycopg's own connection, the one with a wrong password, the silent one.
    assert more("privsql_connections_total") == 3
    assert of(during, "privsql_connections_open") == 1
    assert of(during, "privsql_connections_unauthenticated") == 0
    assert of(after, "privsql_questions_running") == 0
    asked_all = sum(
        more("privsql_questions_total", kind="query", outcome=outcome)
        for outcome in ("answered", "refused", "failed", "canceled")
    )
    for kind, total in (("query", asked_all), ("catalog", 1), ("constant", 1)):
        assert more("privsql_question_seconds_count", kind=kind) == total
        assert more("privsql_question_seconds_bucket", kind=kind, le="+Inf") == total
        assert more("privsql_question_seconds_sum", kind=kind) > 0


def test_gauges_are_plausible_and_histograms_rise(server):
    _, port = server
    found = samples(get(port, "/metrics")[2])
    assert of(found, "privsql_ready") == 1
    assert of(found, "privsql_releases") == 1
    assert of(found, "privsql_workers") == 2
    assert 0 < of(found, "privsql_uptime_seconds") < 3600
    assert 20e6 < of(found, "process_resident_memory_bytes") < 10e9
    assert of(found, "process_cpu_seconds_total") > 0
    assert of(found, "privsql_history_bytes") >= 4096
    assert of(found, "privsql_history_free_bytes") > 0
    assert abs(time.time() - of(found, "process_start_time_seconds")) < 3600
    for kind in ("query", "catalog", "constant"):
        steps = [
            (float(dict(labels)["le"]), value)
            for (name, labels), value in found.items()
            if name == "privsql_question_seconds_bucket" and dict(labels)["kind"] == kind
        ]
        assert len(steps) == 17
        assert [value for _, value in sorted(steps)] == sorted(value for _, value in steps)


def test_no_statement_user_table_or_value_is_in_the_metrics(server):
    made, port = server
    with made.connect("zebulon") as connection:
        secret = "SELECT count(*) AS quokka FROM patients WHERE disease = 'flu' AND cost < 4711"
        (answer,) = connection.execute(secret).fetchone()
        for text in ("SELECT 'wombat'", "SELECT numbat FROM patients", "SELECT * FROM bandicoot"):
            try:
                connection.execute(text)
            except psycopg.Error:
                connection.rollback()
    for path in ("/metrics", "/health", "/bilby", "/metrics?user=zebulon"):
        text = get(port, path)[2].lower()
        for word in ("zebulon", "ann", "patients", "flu", "disease", "4711", "quokka", "wombat"):
            assert not re.search(rf"\b{word}\b", text), (path, word)
        for word in ("numbat", "bandicoot", "bilby", "clinic", f"{answer:.2f}"):
            assert word not in text, (path, word)
    labels = {name for _, keys in samples(get(port, "/metrics")[2]) for name, _ in keys}
    assert labels == {"version", "kind", "outcome", "le", "code", "class"}


def test_a_server_that_stops_is_not_ready(clinic, tmp_path):
    """While a statement is under way; afterwards nobody answers."""
    with watched(tmp_path, clinic, "--stop-timeout", "2") as (made, port):
        assert get(port, "/health")[0] == 200
        with made.connect() as connection:
            asking = threading.Thread(target=_ask, args=(connection, "SELECT pg_sleep(60)"))
            asking.start()
            _until(lambda: of(samples(get(port, "/metrics")[2]), "privsql_questions_running") == 1)
            made.signal(15)
            _until(lambda: get(port, "/health")[::2] == (503, "not ready: listening\n"))
            asking.join(30)
        assert made.ended() == 0
        with pytest.raises(ConnectionRefusedError):
            get(port, "/health")


def _until(true: Callable[[], bool]) -> None:
    for _ in range(200):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it never happened")


def _ask(connection: psycopg.Connection, text: str) -> None:
    with suppress(psycopg.Error):
        connection.execute(text)


def test_a_history_that_is_replaced_is_not_ready(clinic, tmp_path):
    """On an address that other machines can reach, which is warned of."""
    with served(tmp_path, clinic, "--status", "0.0.0.0:0") as made:
        assert "WARNING: other machines can read the status at 0.0.0.0:0" in made.said.read_text()
        port = int(made.banner.rpartition("; status on 0.0.0.0:")[2])
        path = tmp_path / "state" / "privsql" / "history"
        path.rename(path.with_name("away"))
        assert get(port, "/health")[::2] == (503, "not ready: history\n")
        path.with_name("away").rename(path)
        assert get(port, "/health")[0] == 200


def test_a_port_in_use_stops_the_start(clinic, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        state = tmp_path / "state"
        state.mkdir()
        code, out, said = privsql_(
            "serve", clinic, "--listen", "127.0.0.1:0", "--status", str(port),
            "--history", state / "history", "--log", state / "log",
        )  # fmt: skip
    assert (code, out) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port} for the status: " in said
    assert "HINT: give --status another address" in said


@pytest.mark.parametrize("address", ["x", "127.0.0.1:x", ":9090", "127.0.0.1:70000", "-1"])
def test_an_address_that_is_none(clinic, address):
    code, _, said = privsql_("serve", clinic, "--status", address)
    assert code == 2
    assert "--status" in said


def test_the_memory_of_children_is_counted():
    """A child with ten megabytes, and its own child with as many."""
    code = "import sys; held = b'x' * 10**7; print(flush=True); sys.stdin.read()"
    outer = f"import subprocess, sys; inner = subprocess.Popen([sys.executable, '-c', {code!r}])"
    before = resident_children()
    with subprocess.Popen(
        [sys.executable, "-c", f"{outer}; {code}; inner.wait()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        child.stdout.readline()
        child.stdout.readline()
        assert 2 * 10**7 < resident_children() - before < 2 * 10**8
        child.stdin.close()


def test_checks_of_files(tmp_path):
    path = tmp_path / "file"
    assert not unchanged(path)()
    assert writable(path)()
    assert not writable(tmp_path / "nosuch" / "file")()
    path.touch()
    same = unchanged(path)
    assert same()
    path.rename(tmp_path / "other")
    assert not same()
    path.touch()
    assert not same()


# -- the endpoint alone --------------------------------------------------------------------


@contextmanager
def alone(**pages: object) -> Iterator[tuple[Endpoint, int, asyncio.AbstractEventLoop]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    made = Endpoint({f"/{name}": page for name, page in pages.items()})

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    ((_, port),) = run(made.start("127.0.0.1", 0))
    try:
        yield made, port, loop
    finally:
        run(made.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as made:
        made.sendall(data)
        found = b""
        try:
            while part := made.recv(4096):
                found += part
        except ConnectionResetError:
            pass
        return found


def ok() -> Page:
    return Page(200, "fine\n")


def broken() -> Page:
    raise ValueError("secret")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /ok?a=b HTTP/1.0\r\n\r\n", 200),
        (b"GET /nosuch HTTP/1.1\r\n\r\n", 404),
        (b"GET /../ok HTTP/1.1\r\n\r\n", 404),
        (b"POST /ok HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET /ok\r\n\r\n", 400),
        (b"GET /ok HTTP/2\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
    ],
)
def test_requests(data, code, caplog):
    with alone(ok=ok, broken=broken) as (_, port, _):
        found = raw(port, data)
    assert found.startswith(b"HTTP/1.1 %d " % code)
    head, _, body = found.partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head
    assert b"secret" not in found
    assert b"Connection: close" in head


def test_a_request_without_an_end_is_dropped_at_its_limit():
    with alone(ok=ok) as (_, port, _):
        found = raw(port, b"GET /ok HTTP/1.1\r\nX: " + b"x" * 3 * LONGEST)
        assert found == b"" or found.startswith(b"HTTP/1.1 431 ")
        assert raw(port, b"GET /ok HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_slow_clients_hold_nobody_up(monkeypatch):
    """More of them than there may be: the oldest are dropped, and whoever asks is answered."""
    with alone(ok=ok) as (made, port, _), ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for _ in range(4 * MOST)
        ]
        for each in slow:
            each.send(b"GET /ok")
        for _ in range(5):
            assert raw(port, b"GET /ok HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert len(made._open) <= MOST
        # The first was dropped long ago; it hears of it at once.
        with suppress(ConnectionResetError):
            assert slow[0].recv(10) == b""


def test_a_silent_client_is_dropped_in_time(monkeypatch):
    monkeypatch.setattr(http_endpoint, "SECONDS", 0.2)
    with alone(ok=ok) as (made, port, _):
        assert raw(port, b"GET /ok HTTP/1.1\r\n") == b""
        assert len(made._open) == 0


def test_the_end_does_not_wait_for_clients():
    with alone(ok=ok) as (made, port, loop):
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.send(b"GET")
            _until(lambda: len(made._open) == 1)
            asyncio.run_coroutine_threadsafe(made.stop(), loop).result(2)
        with pytest.raises(ConnectionRefusedError):
            raw(port, b"")


def test_a_port_in_use_is_an_error_with_a_way_out():
    with alone(ok=ok) as (_, port, loop):
        other = Endpoint({})
        with pytest.raises(OperationalError, match=f"cannot listen on 127.0.0.1:{port}"):
            asyncio.run_coroutine_threadsafe(other.start("127.0.0.1", port), loop).result(30)

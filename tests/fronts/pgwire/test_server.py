"""The server with real drivers: passwords, TLS, releases, limits, its end and its rebirth."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from privsql.errors import OperationalError, ProgrammingError
from privsql.fronts.pgwire.auth.users import Users
from privsql.fronts.pgwire.releases import House
from privsql.fronts.pgwire.scheduler import at_once
from privsql.fronts.pgwire.server import Allowance, Security, check_address, secured
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.fronts.pgwire.conftest import SMALL, Client, Running, kinds, serving, text
from tests.policy.journals import read
from tests.sizes import sized
from tests.sql.clinic import publish

FLU = "SELECT count(*) FROM patients WHERE disease = 'flu'"


# -- drivers ---------------------------------------------------------------------------------


def test_psycopg_binds_fetches_and_copies(running: Running):
    with psycopg.connect(running.dsn()) as connection:
        said: list[str] = []
        connection.add_notice_handler(lambda found: said.append(str(found.message_primary)))
        sql = """
            SELECT job, count(*) AS n, avg(age) FROM patients
            WHERE disease = %s AND age < %s GROUP BY job ORDER BY job
        """
        texts = connection.execute(sql, ("flu", 25)).fetchall()
        with connection.cursor(binary=True) as cursor:
            binaries = cursor.execute(sql, ("flu", 25)).fetchall()
        assert [row[0] for row in texts] == ["eng", "law", "med"]
        for row, other in zip(texts, binaries, strict=True):
            assert row == pytest.approx(other)
        assert said
        with connection.cursor(name="server side") as cursor:
            cursor.execute("SELECT job, count(*) FROM patients GROUP BY job ORDER BY job")
            assert [row[0] for row in cursor.fetchmany(2)] == ["eng", "law"]
            assert [row[0] for row in cursor] == ["med"]
        with connection.cursor().copy("COPY (SELECT count(*) FROM patients) TO STDOUT") as copy:
            assert list(copy.rows()) == [("4000",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM patients")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute(FLU)
        connection.rollback()
        with connection.pipeline():
            first = connection.execute("SELECT count(*) FROM patients")
            second = connection.execute("SHOW TimeZone")
            assert first.fetchall() == [(4000,)]
            assert second.fetchall() == [("UTC",)]


def test_asyncpg_is_told_the_right_types(running: Running):
    async def work() -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=running.port, user="ann", database="privsql"
        )
        statement = await connection.prepare(
            "SELECT job, count(*) AS n FROM patients WHERE seen < $1 AND age = ANY($2) GROUP BY job"
        )
        assert [each.name for each in statement.get_parameters()] == ["timestamp", "int4[]"]
        assert [each.type.name for each in statement.get_attributes()] == ["text", "float8"]
        found = await statement.fetch(dt.datetime(2024, 6, 1), list(range(60)))
        assert {row["job"] for row in found} == {"eng", "law", "med"}
        assert await connection.fetchval("SELECT $1::int + 1", 41) == 42
        async with connection.transaction():
            cursor = await connection.cursor("SELECT job FROM patients GROUP BY job ORDER BY job")
            assert [row["job"] for row in await cursor.fetch(2)] == ["eng", "law"]
        await connection.close()

    asyncio.run(work())


def test_the_same_question_is_logged_each_time(tmp_path: Path):
    path = publish(tmp_path, 0.5, policy="flag")
    with serving([path], tmp_path) as running:
        with psycopg.connect(running.dsn(), autocommit=True) as connection:
            answers = {connection.execute(FLU).fetchone() for _ in range(3)}
        made = running.entries()
    assert len(answers) == 1
    assert len(made) == 3
    assert len({(entry.statement, entry.user, entry.decision, entry.groups) for entry in made}) == 1
    assert made[0].groups


def test_values_that_python_calls_equal_are_other_questions(release: Path):
    session = Session(release, served=Served("ann"), limits=SMALL)
    for _ in range(2):
        found = [
            session.run("SELECT typeof($1) AS t", [value]).table.to_pylist()
            for value in (1, 1.0, True, None)
        ]
        assert [row["t"] for (row,) in found] == ["INTEGER", "DOUBLE", "BOOLEAN", '"NULL"']
    assert session.remembers("SELECT typeof($1) AS t", [1.0])
    assert not session.remembers("SELECT typeof($1) AS t", [2])
    session.close()


# -- passwords and TLS -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / "cert.pem", folder / "key.pem"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return pem, secret


@pytest.fixture(scope="module")
def guarded(
    release: Path, certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("guarded")
    users = Users(folder / "users")
    users.add("ann", "secret")
    users.add("bob", "secret", [])
    security = secured(users, tls_cert=certificate[0], tls_key=certificate[1], require_tls=True)
    with serving([release], folder, security=security) as made:
        yield made


def test_a_password_over_tls_lets_drivers_in(guarded: Running):
    with psycopg.connect(guarded.dsn(password="secret", sslmode="require")) as connection:
        assert connection.execute("SELECT count(*) FROM patients").fetchone() == (4000,)
        assert connection.pgconn.ssl_in_use

    async def work() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = await asyncpg.connect(
            host="127.0.0.1",
            port=guarded.port,
            user="ann",
            password="secret",
            database="privsql",
            ssl=context,
        )
        assert await connection.fetchval("SELECT count(*) FROM patients") == 4000
        await connection.close()

    asyncio.run(work())


def test_the_exchange_is_bound_to_the_certificate(guarded: Running):
    dsn = guarded.dsn(password="secret", sslmode="require", channel_binding="require")
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SHOW TimeZone").fetchone() == ("UTC",)


@pytest.mark.parametrize(
    ("user", "password"), [("ann", "wrong"), ("nobody", "secret"), ("ann", "")]
)
def test_nobody_else_is_let_in(guarded: Running, user: str, password: str):
    with pytest.raises(psycopg.OperationalError) as raised:
        psycopg.connect(guarded.dsn(user=user, password=password or "''", sslmode="require"))
    if password:
        assert f'password authentication failed for user "{user}"' in str(raised.value)


def test_who_does_not_encrypt_is_refused_where_that_is_required(guarded: Running):
    with pytest.raises(psycopg.OperationalError, match="must be encrypted"):
        psycopg.connect(guarded.dsn(password="secret", sslmode="disable"))


def test_bytes_put_before_encryption_are_not_taken_for_encrypted(guarded: Running):
    client = Client(guarded.port)
    client.socket.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f" + b"Q\0\0\0\x0bSELECT\0")
    assert client.receive().fields["C"] == "08P01"
    with pytest.raises((EOFError, ConnectionError)):
        client.receive()


def test_a_user_sees_only_their_releases(guarded: Running):
    dsn = guarded.dsn(user="bob", password="secret", sslmode="require")
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute(FLU)
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
        assert tables == []
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(guarded.dsn(user="bob", password="secret", dbname="patients"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_nobody_listens_to_the_world_without_passwords_and_tls(host: str, tmp_path: Path):
    users = Users(tmp_path / "users")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for security in (Security(), Security(users), Security(None, context, b"", True)):
        with pytest.raises(ProgrammingError):
            check_address(host, security)
        check_address("127.0.0.1", security)
    check_address(host, Security(users, context, b"", True))
    check_address(host, Security(), insecure=True)


def test_tls_without_a_certificate_is_refused(tmp_path: Path):
    with pytest.raises(ProgrammingError):
        secured(None, require_tls=True)
    with pytest.raises(OperationalError):
        secured(None, tls_cert=tmp_path / "none.pem", tls_key=tmp_path / "none.pem")


def test_an_encrypted_key_is_an_error_and_no_question_to_the_terminal(
    certificate: tuple[Path, Path], tmp_path: Path
):
    """In a process with a terminal of its own: OpenSSL would ask that, whatever stdin is."""
    plain = serialization.load_pem_private_key(certificate[1].read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        plain.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    both = tmp_path / "both.pem"
    both.write_bytes(certificate[0].read_bytes() + locked.read_bytes())
    for given in ({"tls_cert": certificate[0], "tls_key": locked}, {"tls_cert": both}):
        with pytest.raises(OperationalError, match="is encrypted") as raised:
            secured(None, **given)
        assert "openssl pkey" in (raised.value.hint or "")
    program = f"""
import os, sys
os.open(sys.argv[1], os.O_RDWR)  # the terminal of the session from here on
from privsql.errors import OperationalError
from privsql.fronts.pgwire.server import secured
try:
    secured(None, tls_cert={str(certificate[0])!r}, tls_key={str(locked)!r})
except OperationalError as problem:
    print("SAID", problem.reason)
"""
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, os.ttyname(theirs)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            start_new_session=True,
        )
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):
            os.read(ours, 1000)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == "SAID the key of the certificate is encrypted\n", done.stderr


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ("nobody", "as 'nobody' was ended: password"),
        ("a\nFORGED a connection\x1b[2J", r"as 'a\nFORGED a connection\x1b[2J' was ended"),
        ("\u202edäm", r"as '\u202ed\xe4m' was ended"),
        ("x" * 500, "as '" + "x" * 63 + "...' was ended"),
    ],
    ids=["plain", "control", "unicode", "long"],
)
def test_who_failed_to_log_in_is_in_the_log(
    guarded: Running, caplog: pytest.LogCaptureFixture, user: str, shown: str
):
    """With the name that was asked for, in one line that nobody else writes."""
    with caplog.at_level("INFO", "privsql.pgwire"):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(
                host="127.0.0.1",
                port=guarded.port,
                user=user,
                password="wrong",
                dbname="privsql",
                sslmode="require",
            )
        until = time.monotonic() + 10
        while not caplog.records and time.monotonic() < until:
            time.sleep(0.01)
    [line] = [record.getMessage() for record in caplog.records]
    assert shown in line
    assert line.startswith("a connection from 127.0.0.1 as '")
    assert line.isprintable()
    assert line.isascii()
    assert len(line) < 200
    assert "wrong" not in line


# -- limits ------------------------------------------------------------------------------------


def test_connections_idleness_messages_and_logins_are_limited(release: Path, tmp_path: Path):
    allowance = Allowance(
        connections=2, message=1000, authentication=0.5, idle=1.0, workers=1, look=3600, patience=1
    )
    with serving([release], tmp_path, allowance=allowance) as running:
        silent = Client(running.port)
        with pytest.raises((EOFError, ConnectionError)):
            silent.receive()
        one, two = running.client(), running.client()
        third = Client(running.port)
        (refused,) = [m for m in third.start(user="ann", database="privsql") if m.kind == "E"]
        assert refused.fields["C"] == "53300"
        one.send("Q", text("SELECT '" + "x" * 2000 + "'"))
        assert one.until("E")[-1].fields["C"] == "08P01"
        assert two.until("E")[-1].fields["C"] == "57P05"
        with pytest.raises((EOFError, ConnectionError)):
            two.receive()


def test_a_slow_reader_holds_a_bounded_buffer(running: Running):
    client = running.client()
    rows = sized(120_000, 300_000)  # of a hundred bytes: more than is held, and than sockets hold
    client.send("Q", text(f"SELECT i, repeat('x', 100) FROM generate_series(1, {rows}) t(i)"))
    time.sleep(3)
    (mine,) = [c for c in running.server._clients.values() if c.state == "sending"]
    held = mine.channel.transport.get_write_buffer_size()
    assert 0 < held < 8_000_000
    found = client.until("Z")
    assert kinds(found).count("D") == rows


def test_the_statement_of_a_client_that_vanishes_is_ended(running: Running):
    many = "generate_series(1, 1000000) a, generate_series(1, 90000) b"
    slow = f"SELECT count(*) FROM {many} WHERE a + b = 3"
    for _ in range(running.server.allowance.workers):
        client = running.client()
        client.send("Q", text(slow))
        time.sleep(0.5)
        client.close()
    begun = time.monotonic()
    with psycopg.connect(running.dsn()) as connection:
        connection.execute("SELECT count(*) FROM patients WHERE cost > 33").fetchall()
    assert time.monotonic() - begun < 15  # the slow ones would take all of their 30 seconds


def test_clients_that_vanish_leave_nothing_behind(running: Running):
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        connection.execute(FLU)
    threads = threading.active_count()
    for n in range(10):
        client = running.client()
        client.send(
            "Q", text(f"SELECT count(*) FROM patients WHERE age % {n + 3} = 1 AND cost > {n}")
        )
        time.sleep(0.02 * n)
        client.close()
    until = time.monotonic() + 30
    while running.server._clients and time.monotonic() < until:
        time.sleep(0.05)
    assert not running.server._clients
    # Those of its schedulers begin when there is more to do, and stay.
    most = threads + 2 + 2 * at_once(2)
    while threading.active_count() > most and time.monotonic() < until:
        time.sleep(0.05)
    assert threading.active_count() <= most


# -- releases that are published again ---------------------------------------------------------


def test_a_release_that_is_published_again_is_served_without_a_break(tmp_path: Path):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    first, second = publish(before, 0.5), publish(after, 1.0)
    path = tmp_path / "served.duckdb"
    shutil.copyfile(first, path)
    with (
        serving([path], tmp_path) as running,
        psycopg.connect(running.dsn(), autocommit=True) as connection,
    ):
        old = connection.execute(FLU).fetchone()
        (link,) = [v.path for v in running.house.versions().values()]
        staged = tmp_path / "staged"
        shutil.copyfile(second, staged)
        staged.replace(path)
        assert connection.execute(FLU).fetchone() == old
        assert running.refresh() == ["patients"]
        assert running.refresh() == []
        new = connection.execute(FLU).fetchone()
        assert new != old
        assert not link.exists()
        # What cannot be read is not served, and nobody notices.
        staged.write_bytes(b"no release")
        staged.replace(path)
        assert running.refresh() == []
        assert connection.execute(FLU).fetchone() == new


def test_a_version_is_kept_until_its_last_answer_has_ended(tmp_path: Path):
    (tmp_path / "a").mkdir()
    path = tmp_path / "served.duckdb"
    shutil.copyfile(publish(tmp_path / "a", 0.5), path)
    house = House([path], limits=SMALL, sessions=2)
    version = house.versions()["patients"]
    with house.lease(version, "ann") as session:
        shutil.copyfile(path, tmp_path / "again")
        (tmp_path / "again").replace(path)
        assert house.refresh() == ["patients"]
        assert version.path.exists()
        assert session.run("SELECT count(*) FROM patients").table.num_rows == 1
    assert not version.path.exists()
    folder = version.path.parent
    house.close()
    assert not folder.exists()


def test_two_releases_of_one_name_are_refused(release: Path, tmp_path: Path):
    shutil.copyfile(release, tmp_path / "twin.duckdb")
    with pytest.raises(ProgrammingError, match="two releases"):
        House([release, tmp_path / "twin.duckdb"], limits=SMALL)


# -- the end -----------------------------------------------------------------------------------


def test_a_server_that_stops_tells_its_clients(release: Path, tmp_path: Path):
    with serving([release], tmp_path) as running:
        client = running.client()
    assert client.until("E")[-1].fields["C"] == "57P01"
    with pytest.raises(ConnectionError):
        Client(running.port)


SERVE = """
import asyncio, sys
from privsql.fronts.pgwire.server import House, serve
from privsql.policy.history import History
from privsql.policy.journal import Journal

async def main():
    path, folder = sys.argv[1:]
    history, journal = History(folder + "/history"), Journal(folder + "/journal")
    house = House([path], history=history, journal=journal)
    ready = asyncio.get_running_loop().create_future()
    ready.add_done_callback(lambda done: print(done.result()[0][1], flush=True))
    await serve([], port=0, house=house, ready=ready)

asyncio.run(main())
"""


def test_killing_the_server_loses_no_line_of_an_answer_that_was_given(
    release: Path, tmp_path: Path
):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(release), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        given: list[str] = []
        dsn = f"host=127.0.0.1 port={port} user=ann dbname=privsql"
        connection = psycopg.connect(dsn, autocommit=True)
        with suppress(psycopg.OperationalError):
            for n in range(1000):
                sql = f"SELECT count(*) AS n{n} FROM patients WHERE cost > {n}"
                connection.execute(sql).fetchall()
                given.append(sql)
                if n == 5:
                    threading.Timer(0.1, process.send_signal, [signal.SIGKILL]).start()
        connection.close()
    assert 5 < len(given) < 1000
    kept = {entry.statement.lower() for entry in read(tmp_path / "journal")}
    assert {sql.lower() for sql in given} <= kept
    # The next server clears away what this one could not.
    left = list(tmp_path.glob("privsql-served-*"))
    assert left
    House([release], limits=SMALL, folder=tmp_path).close()
    assert not list(tmp_path.glob("privsql-served-*"))

"""The protocol, byte by byte, against a real server."""

from __future__ import annotations

import struct
import time

import pytest

from tests.fronts.pgwire.conftest import Client, Message, Running, kinds, one, text

FLU = "SELECT count(*) FROM patients WHERE disease = $1"
JOBS = "SELECT job, count(*) FROM patients GROUP BY job ORDER BY job"


def error(messages):
    return one(messages, "E").fields


# -- the beginning ---------------------------------------------------------------------------


def test_clients_are_told_what_they_need(running: Running):
    client = Client(running.port)
    found = client.start(
        user="ann", database="privsql", application_name="me", TimeZone="Asia/Tokyo"
    )
    assert kinds(found).startswith("R")
    assert kinds(found).endswith("KZ")
    assert client.status["server_version"].startswith("15")
    assert client.status["application_name"] == "me"
    assert client.status["TimeZone"] == "Asia/Tokyo"
    assert client.status["standard_conforming_strings"] == "on"
    assert len(client.key) == 8
    client.close()


@pytest.mark.parametrize("code", [80877103, 80877104], ids=["tls", "gss"])
def test_encryption_that_there_is_not_is_declined(running: Running, code: int):
    client = Client(running.port)
    client.first(code)
    assert client.exactly(1) == b"N"
    assert client.start(user="ann", database="privsql")[-1].kind == "Z"
    client.close()


def test_a_newer_version_is_brought_down_to_ours(running: Running):
    client = Client(running.port)
    body = b"user\0ann\0database\0privsql\0_pq_.new\0x\0\0"
    client.first((3 << 16) | 2, body)
    found = client.until("Z", "E")
    assert found[0].kind == "v"
    assert found[0].body == struct.pack("!ii", 3 << 16, 1) + b"_pq_.new\0"
    assert found[-1].kind == "Z"
    client.close()


def test_an_older_version_is_refused(running: Running):
    client = Client(running.port)
    client.first(2 << 16)
    assert error(client.until("E"))["C"] == "08P01"
    client.close()


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({"user": "ann", "database": "nothing"}, "3D000"),
        ({"database": "privsql"}, "28000"),
        ({"user": "ann", "database": "privsql", "replication": "true"}, "28000"),
        ({"user": "ann", "database": "privsql", "client_encoding": "LATIN1"}, "22023"),
        ({"user": "ann", "database": "privsql", "nonsense": "1"}, "42704"),
        ({"user": "ann", "database": "privsql", "options": "-c x"}, "08P01"),
    ],
)
def test_who_cannot_be_let_in_is_told_why(running: Running, settings, state):
    client = Client(running.port)
    fields = error(client.start(**settings))
    assert (fields["S"], fields["C"]) == ("FATAL", state)
    with pytest.raises((EOFError, ConnectionError)):
        client.receive()
    client.close()


def test_options_of_the_startup_are_settings(running: Running):
    client = running.client(options="-c TimeZone=Europe/Paris --application_name=a\\ b")
    assert client.status["TimeZone"] == "Europe/Paris"
    assert client.status["application_name"] == "a b"
    client.close()


# -- simple ----------------------------------------------------------------------------------


def test_a_simple_query_is_answered_in_order(client: Client):
    found = client.query(JOBS)
    assert kinds(found).replace("N", "") == "TDDDCZ"
    assert one(found, "T").columns == [("job", 25, 0), ("count", 20, 0)]
    assert one(found, "C").text == "SELECT 3"
    assert found[1].cells[0] == b"eng"


def test_several_statements_end_at_the_first_error(client: Client):
    found = client.query("SHOW TimeZone; SELECT nonsense FROM patients; SHOW TimeZone")
    assert kinds(found) == "TDCEZ"


def test_nothing_is_answered_with_nothing(client: Client):
    assert kinds(client.query(" ; -- nothing")) == "IZ"


def test_the_place_of_an_error_is_in_the_clients_own_text(client: Client):
    sql = "SHOW TimeZone;\n SELECT count( * ) FROM public.patients WHERE agee>3"
    fields = error(client.query(sql))
    assert sql[int(fields["P"]) - 1 :].startswith("agee")
    assert fields["H"]
    assert fields["D"].startswith("privsql: ")


def test_a_table_that_is_not_there_is_pointed_at(client: Client):
    sql = "SELECT count(*) FROM patiens"
    fields = error(client.query(sql))
    assert fields["C"] == "42P01"
    assert sql[int(fields["P"]) - 1 :] == "patiens"


def test_every_notice_is_sent_before_its_rows(client: Client):
    sql = "SELECT job, count(*) FROM patients WHERE disease='flu' AND age < 21 GROUP BY job"
    found = client.query(sql)
    order = kinds(found)
    assert "N" in order
    assert order.index("N") < order.index("D")
    notice = next(each for each in found if each.kind == "N").fields
    assert (notice["S"], notice["C"]) == ("NOTICE", "00000")
    assert notice["M"].endswith("]")


@pytest.mark.parametrize(
    "sql", ["INSERT INTO patients VALUES (1)", "DROP TABLE patients", "VACUUM"]
)
def test_nothing_can_be_changed(client: Client, sql: str):
    assert error(client.query(sql))["C"] == "25006"
    assert kinds(client.query("SHOW TimeZone")) == "TDCZ"


# -- extended --------------------------------------------------------------------------------


def test_the_steps_of_a_prepared_statement(client: Client):
    client.parse(FLU, "s")
    client.describe("S", "s")
    client.bind((b"flu",), name="s", portal="p", results=(1,))
    client.describe("P", "p")
    client.execute("p")
    found = client.sync()
    assert kinds(found).replace("N", "") == "1tT2TDCZ"
    assert one(found, "t").body == struct.pack("!HI", 1, 25)
    described = [each.columns for each in found if each.kind == "T"]
    assert described == [[("count", 701, 0)], [("count", 701, 1)]]
    (value,) = struct.unpack("!d", one(found, "D").cells[0])
    assert value > 0


def test_describing_never_asks(running: Running, client: Client):
    before = len(running.entries())
    client.parse(FLU, "d")
    client.describe("S", "d")
    client.bind((b"hiv",), name="d")
    client.describe("P")
    assert kinds(client.sync()) == "1tT2TZ"
    assert len(running.entries()) == before
    client.bind((b"hiv",), name="d")
    client.execute()
    client.sync()
    assert len(running.entries()) == before + 1


@pytest.mark.parametrize(
    ("sql", "oids"),
    [
        ("SELECT count(*) FROM patients WHERE age < $1 AND disease LIKE $2", (23, 25)),
        ("SELECT count(*) FROM patients p WHERE p.seen BETWEEN $1 AND $2", (1114, 1114)),
        ("SELECT job FROM patients WHERE cost IN ($1, $2) GROUP BY job LIMIT $3", (23, 23, 20)),
        ("SELECT count(*) FROM patients WHERE age = ANY($1)", (1007,)),
        ("SELECT count(*) FROM patients WHERE cost > $1::numeric(9,2)", (1700,)),
        ("SELECT count(*) FROM patients GROUP BY job HAVING count(*) > $1", (20,)),
    ],
)
def test_types_of_parameters_are_found_in_the_statement(client: Client, sql, oids):
    client.parse(sql)
    client.describe("S")
    found = client.sync()
    assert one(found, "t").body == struct.pack(f"!H{len(oids)}I", len(oids), *oids)


def test_types_that_the_client_gives_are_kept(client: Client):
    client.parse("SELECT count(*) FROM patients WHERE age < $1", oids=(20,))
    client.describe("S")
    assert one(client.sync(), "t").body == struct.pack("!HI", 1, 20)


def test_rows_are_given_so_many_at_a_time(client: Client):
    client.parse(JOBS)
    client.bind()
    client.execute(most=2)
    client.execute(most=2)
    found = client.sync()
    assert kinds(found).replace("N", "") == "12DDsDCZ"
    assert [each.cells[0] for each in found if each.kind == "D"] == [b"eng", b"law", b"med"]


def test_a_portal_ends_with_its_transaction(client: Client):
    client.query("BEGIN")
    client.parse(JOBS)
    client.bind(portal="p")
    client.execute("p", 1)
    assert client.sync()[-1].body == b"T"
    client.execute("p", 1)
    assert kinds(client.sync()).replace("N", "") == "DsZ"
    client.query("COMMIT")
    client.execute("p")
    assert error(client.sync())["C"] == "34000"


def test_a_named_statement_is_checked_when_it_is_parsed(client: Client):
    client.parse("SELECT nosuch FROM patients", "wrong")
    assert error(client.sync())["C"] == "42703"
    client.parse(JOBS, "wrong")  # the name is free
    assert kinds(client.sync()) == "1Z"


def test_after_an_error_everything_is_skipped_until_sync(client: Client):
    client.parse("SELECT nonsense(")
    client.bind()
    client.execute()
    client.parse(JOBS, "later")
    found = client.sync()
    assert kinds(found) == "EZ"
    client.bind(name="later")
    assert error(client.sync())["C"] == "26000"


def test_pipelined_statements_are_answered_one_by_one(client: Client):
    for sql in (JOBS, "SELECT nothing FROM patients", "SHOW TimeZone"):
        client.parse(sql)
        client.bind()
        client.describe("P")
        client.execute()
        client.send("S")
    found = [client.until("Z") for _ in range(3)]
    assert [kinds(each).replace("N", "") for each in found] == ["12TDDDCZ", "12EZ", "12TDCZ"]


def test_names_are_taken_once(client: Client):
    client.parse(JOBS, "twice")
    client.parse(JOBS, "twice")
    assert error(client.sync())["C"] == "42P05"
    client.query("BEGIN")
    client.bind(name="twice", portal="p")
    client.bind(name="twice", portal="p")
    assert error(client.sync())["C"] == "42P03"
    client.query("ROLLBACK")
    client.send("C", b"S" + text("twice"))
    client.send("C", b"P" + text("never was"))
    assert kinds(client.sync()) == "33Z"


@pytest.mark.parametrize(
    ("values", "formats", "state"),
    [
        ((), (), "08P01"),
        ((b"1", b"2"), (), "08P01"),
        ((b"x",), (), "22P02"),
        ((b"x",), (1,), "22P03"),
    ],
)
def test_values_that_do_not_fit_are_an_error_and_no_more(client: Client, values, formats, state):
    client.parse("SELECT count(*) FROM patients WHERE age < $1")
    client.bind(values, formats=formats)
    client.execute()
    assert error(client.sync())["C"] == state
    assert kinds(client.query("SHOW TimeZone")) == "TDCZ"


def test_a_null_is_bound_as_one(client: Client):
    client.parse("SELECT count(*) FROM patients WHERE job = $1")
    client.bind((None,))
    client.execute()
    assert one(client.sync(), "D").cells == [b"0"]


# -- transactions and settings -----------------------------------------------------------------


def test_a_failed_transaction_answers_nothing_until_it_ends(client: Client):
    assert client.query("BEGIN")[-1].body == b"T"
    assert client.query("SELECT nothing FROM patients")[-1].body == b"E"
    refused = client.query(JOBS)
    assert error(refused)["C"] == "25P02"
    client.parse(JOBS)
    assert error(client.sync())["C"] == "25P02"
    ended = client.query("COMMIT")
    assert one(ended, "C").text == "ROLLBACK"
    assert ended[-1].body == b"I"


def test_settings_are_told_kept_and_rolled_back(client: Client):
    found = client.query("SET TimeZone = 'Europe/Berlin'")
    assert one(found, "S").body == b"TimeZone\0Europe/Berlin\0"
    client.query("BEGIN")
    client.query("SET TimeZone = 'Asia/Tokyo'")
    back = client.query("ROLLBACK")
    assert one(back, "S").body == b"TimeZone\0Europe/Berlin\0"
    client.query("BEGIN")
    client.query("SET LOCAL TimeZone = 'Asia/Tokyo'")
    assert one(client.query("SHOW timezone"), "D").cells == [b"Asia/Tokyo"]
    client.query("COMMIT")
    assert one(client.query("SHOW timezone"), "D").cells == [b"Europe/Berlin"]
    client.query("RESET ALL")
    assert one(client.query("SHOW timezone"), "D").cells == [b"UTC"]


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("SET nonsense = 1", "42704"),
        ("SET server_version = '9'", "55P02"),
        ("SET TimeZone = 'Mars/Base'", "22023"),
        ("SET client_encoding = 'LATIN1'", "22023"),
        ("SET privsql.estimator = 'magic'", "42000"),
        ("SHOW nonsense", "42704"),
    ],
)
def test_settings_that_cannot_be_are_refused(client: Client, sql, state):
    assert error(client.query(sql))["C"] == state


def test_our_own_settings_change_answers(client: Client):
    client.query("SET privsql.error_bars = on")
    found = client.query("SELECT count(*) AS n FROM patients WHERE disease = 'flu'")
    names = [name for name, _, _ in one(found, "T").columns]
    assert names == ["n", "n_stderr", "n_low", "n_high", "n_reliable"]
    client.parse("SELECT count(*) AS n FROM patients WHERE disease = 'flu'")
    client.describe("S")
    assert [name for name, _, _ in one(client.sync(), "T").columns] == names


# -- cursors and COPY ----------------------------------------------------------------------------


def test_cursors_move_as_they_are_told(client: Client):
    assert error(client.query(f"DECLARE c CURSOR FOR {JOBS}"))["C"] == "25P01"
    client.query(f"BEGIN; DECLARE c SCROLL CURSOR FOR {JOBS}")

    def fetched(how: str) -> list[bytes | None]:
        found = client.query(f"FETCH {how} FROM c")
        return [each.cells[0] for each in found if each.kind == "D"]

    assert fetched("2") == [b"eng", b"law"]
    assert fetched("ALL") == [b"med"]
    assert fetched("NEXT") == []
    assert fetched("PRIOR") == [b"med"]
    assert fetched("ABSOLUTE 1") == [b"eng"]
    assert fetched("BACKWARD ALL") == []
    assert fetched("LAST") == [b"med"]
    assert one(client.query("MOVE BACKWARD 2 FROM c"), "C").text == "MOVE 2"
    assert fetched("0") == [b"eng"]
    client.query("CLOSE c")
    assert error(client.query("FETCH 1 FROM c"))["C"] == "34000"
    client.query("ROLLBACK")


def test_a_cursor_with_hold_outlives_its_transaction(client: Client):
    client.query(f"BEGIN; DECLARE h CURSOR WITH HOLD FOR {JOBS}; COMMIT")
    assert kinds(client.query("FETCH 1 FROM h")).replace("N", "") == "TDCZ"
    client.query("CLOSE ALL")


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ("", [b"a\\tb\\\\\t1\n", b"\\N\t2\n"]),
        ("CSV HEADER", [b"x,y\n", b"a\tb\\,1\n", b",2\n"]),
        ("WITH (FORMAT csv, DELIMITER '1', NULL '2')", [b'a\tb\\1"1"\n', b'21"2"\n']),
    ],
)
def test_copies_are_written_as_postgresql_does(client: Client, options, lines):
    sql = "SELECT CASE WHEN i = 1 THEN E'a\\tb\\\\' END AS x, i AS y FROM (VALUES (1), (2)) t(i)"
    found = client.query(f"COPY ({sql} ORDER BY 2) TO STDOUT {options}")
    assert kinds(found) == "H" + "d" * len(lines) + "cCZ"
    assert [each.body for each in found if each.kind == "d"] == lines
    assert one(found, "C").text == "COPY 2"


def test_a_binary_copy_has_postgresqls_frame(client: Client):
    found = client.query("COPY (SELECT 1 AS x) TO STDOUT (FORMAT binary)")
    data = b"".join(each.body for each in found if each.kind == "d")
    assert data == b"PGCOPY\n\xff\r\n\0" + bytes(8) + struct.pack("!hii", 1, 4, 1) + b"\xff\xff"


# -- bad clients -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"Q\0\0\0\x03",  # shorter than its own length
        b"Q\x7f\xff\xff\xff",  # 2 GB
        b"Q\0\0\0\x08SELE",  # no end
        b"P\0\0\0\x05x",
        b"B\0\0\0\x0a\0\0\0\x09\0\x01",
        b"?\0\0\0\x04",
        b"p\0\0\0\x05x",
    ],
)
def test_a_malformed_message_ends_that_connection_alone(running: Running, client: Client, data):
    bad = running.client()
    bad.socket.sendall(data)
    assert error(bad.until("E"))["C"] == "08P01"
    with pytest.raises((EOFError, ConnectionError)):
        bad.receive()
    bad.close()
    assert kinds(client.query("SHOW TimeZone")) == "TDCZ"


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(4), b"\xff" * 100])
def test_what_is_no_client_is_let_go(running: Running, data: bytes):
    stranger = Client(running.port)
    stranger.socket.sendall(data)
    if not data:
        stranger.close()
        return
    if len(data) >= 8:
        assert stranger.until("E")
    stranger.close()


SLOW = """
    SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 100000) b WHERE a + b = 3
"""


def cancel(running: Running, key: bytes) -> None:
    killer = Client(running.port)
    killer.first(80877102, key)
    with pytest.raises((EOFError, ConnectionError)):
        killer.exactly(1)


def canceled(running: Running, client: Client) -> list[Message]:
    """Press Ctrl-C until it is heard: a statement may not have begun."""
    until = time.monotonic() + 20
    client.socket.settimeout(0.5)
    while True:
        cancel(running, client.key)
        try:
            first = client.receive()
        except TimeoutError:
            assert time.monotonic() < until
        else:
            client.socket.settimeout(60)
            return [first, *client.until("Z")]


def test_a_cancel_request_needs_the_secret(running: Running, client: Client):
    client.send("Q", text(SLOW))
    client.socket.settimeout(1)
    cancel(running, client.key[:4] + bytes(byte ^ 1 for byte in client.key[4:]))
    with pytest.raises(TimeoutError):
        client.receive()
    assert error(canceled(running, client))["C"] == "57014"
    assert kinds(client.query("SHOW TimeZone")) == "TDCZ"


def test_a_cancel_request_stops_a_reconstruction(running: Running, client: Client):
    # Each term has both columns, so that cells cannot be taken column by column.
    both = "age * {} + length(disease)"
    many = " OR ".join(f"({both.format(i)}) % {i + 7} = {i % 5}" for i in range(2, 100))
    client.send(
        "Q", text(f"SELECT disease, age, count(*) FROM patients WHERE {many} GROUP BY 1, 2")
    )
    assert error(canceled(running, client))["C"] == "57014"
    assert running.entries()[-1].reason == "canceled"
    assert kinds(client.query("SHOW TimeZone")) == "TDCZ"


def test_who_cancels_ends_nobody_elses_statement(running: Running, client: Client):
    other = running.client()
    client.send("Q", text(SLOW))
    other.send("Q", text(SLOW.replace("1000000", "6000")))
    time.sleep(0.7)
    canceled(running, client)
    assert kinds(other.until("Z")) == "TDCZ"


def test_a_time_limit_of_the_client_is_kept(running: Running):
    client = running.client()
    client.query("SET statement_timeout = '1ms'")
    sql = "SELECT count(*) FROM patients WHERE (age * 3) % 11 = 5 AND disease = 'flu'"
    assert error(client.query(sql))["C"] == "57014"
    client.query("RESET statement_timeout")
    assert kinds(client.query(sql)).replace("N", "") == "TDCZ"
    client.close()

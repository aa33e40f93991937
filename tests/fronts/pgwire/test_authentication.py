"""Passwords: the exchange against another implementation, and what a failure tells nobody."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import stat
from pathlib import Path

import pytest
from scramp import ScramClient
from scramp.utils import saslprep

from privsql.errors import DataError, OperationalError
from privsql.fronts.pgwire.auth.scram import (
    BOUND,
    PLAIN,
    Exchange,
    Verifier,
    mock,
    prepared,
    verifier,
)
from privsql.fronts.pgwire.auth.users import Users
from privsql.fronts.pgwire.errors import PasswordError, ProtocolError


def exchange(password: str = "secret", *, real: bool = True, binding: bytes | None = None):
    return Exchange(verifier(password), real=real, user="ann", binding=binding)


def log_in(server: Exchange, password: str, mechanism: str = PLAIN, binding=None) -> None:
    client = ScramClient([mechanism], "ann", password, channel_binding=binding)
    client.set_server_first(server.first(mechanism, client.get_client_first().encode()).decode())
    client.set_server_final(server.final(client.get_client_final().encode()).decode())


def by_hand(server: Exchange, password: str, first: str = "n,,n=,r=abc") -> bytes:
    """The client of RFC 5802 with libpq's empty name."""
    said = server.first(PLAIN, first.encode()).decode()
    fields = dict(part.split("=", 1) for part in said.split(","))
    salt = base64.b64decode(fields["s"])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    without = f"c={base64.b64encode(first[:3].encode()).decode()},r={fields['r']}"
    messages = f"{first[3:]},{said},{without}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), messages, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    final = server.final(f"{without},p={proof}".encode())
    proven = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), messages, "sha256")
    assert final == b"v=" + base64.b64encode(proven)
    return final


@pytest.mark.parametrize("password", ["secret", "pässwörd", "with, comma=and", "x" * 1000])
def test_the_right_password_is_let_in_by_another_implementation(password):
    log_in(exchange(password), password)


def test_the_empty_name_of_libpq_is_let_in():
    by_hand(exchange(), "secret")


@pytest.mark.parametrize("given", ["Secret", "secret ", "", "x"])
def test_a_wrong_password_is_not(given):
    with pytest.raises(PasswordError):
        by_hand(exchange(), given)


def test_who_does_not_exist_is_told_the_same_as_who_is_wrong(tmp_path: Path):
    users = Users(tmp_path / "users")
    users.add("ann", "secret")
    told = []
    for name in ("ann", "nobody"):
        kept, real = users.verifier(name)
        server = Exchange(kept, real=real, user="x", binding=None)
        with pytest.raises(PasswordError) as raised:
            by_hand(server, "wrong")
        told.append((raised.value.reason, raised.value.sqlstate, kept.iterations, len(kept.salt)))
    assert told[0] == told[1]


def test_no_password_fits_who_does_not_exist_even_one_that_would():
    with pytest.raises(PasswordError):
        by_hand(exchange("secret", real=False), "secret")


def test_the_salt_of_who_does_not_exist_stays_over_restarts(tmp_path: Path):
    Users(tmp_path / "users").add("ann", "secret")
    first, second = (Users(tmp_path / "users").verifier("nobody") for _ in range(2))
    assert first == second
    assert first[0] != Users(tmp_path / "users").verifier("nobody2")[0]
    assert mock("a", b"1" * 32) != mock("a", b"2" * 32)


def test_a_bound_exchange_is_for_one_certificate():
    binding = ("tls-server-end-point", b"certificate")
    log_in(exchange(binding=b"certificate"), "secret", BOUND, binding)
    with pytest.raises(PasswordError):
        log_in(exchange(binding=b"another"), "secret", BOUND, binding)


def test_who_took_the_bound_mechanism_out_of_the_list_is_noticed():
    with pytest.raises(ProtocolError):
        by_hand(exchange(binding=b"certificate"), "secret", "y,,n=,r=abc")
    by_hand(exchange(), "secret", "y,,n=,r=abc")  # there was none


@pytest.mark.parametrize(
    "first",
    [b"", b"n,,", b"n,a=bob,n=,r=abc", b"n,,n=,r=", b"n,,m=x,n=,r=abc", b"q,,n=,r=a", b"\xff"],
)
def test_a_first_message_that_is_none_is_refused(first):
    with pytest.raises(ProtocolError):
        exchange().first(PLAIN, first)


@pytest.mark.parametrize("final", [b"", b"c=biws,r=abc", b"c=biws,r=abc,p=???", b"c=biws,p=YQ=="])
def test_a_last_message_that_is_none_is_refused(final):
    server = exchange()
    server.first(PLAIN, b"n,,n=,r=abc")
    with pytest.raises(ProtocolError):
        server.final(final)


def test_another_nonce_is_refused():
    server = exchange()
    server.first(PLAIN, b"n,,n=,r=abc")
    proof = base64.b64encode(bytes(32))
    with pytest.raises(PasswordError):
        server.final(b"c=biws,r=abc,p=" + proof)


@pytest.mark.parametrize("text", ["a b", "IX", "\u2168", "I\u00adX", "é", "\u00a0x", "e\u0301"])
def test_passwords_are_prepared_as_others_do(text):
    assert prepared(text) == saslprep(text)


# -- the file --------------------------------------------------------------------------------


def test_the_file_holds_no_password_and_is_its_owners(tmp_path: Path):
    path = tmp_path / "users"
    users = Users(path)
    users.add("ann", "a very secret word", ["patients"])
    data = path.read_bytes()
    assert b"secret word" not in data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    kept = json.loads(data)["users"]["ann"]
    assert kept["verifier"].startswith("SCRAM-SHA-256$")
    found = Users(path).find("ann")
    assert found is not None
    assert found.may("patients")
    assert not found.may("visits")


def test_who_is_added_or_removed_is_seen_by_a_server_that_runs(tmp_path: Path):
    server, admin = Users(tmp_path / "users"), Users(tmp_path / "users")
    assert server.find("ann") is None
    admin.add("ann", "secret")
    assert server.verifier("ann")[1]
    assert admin.remove("ann")
    assert not admin.remove("ann")
    assert not server.verifier("ann")[1]


def test_the_same_password_twice_has_two_verifiers():
    assert verifier("secret") != verifier("secret")
    assert "secret" not in repr(verifier("secret"))


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"version":1}', b"\xff", b'{"version":2}']
)
def test_a_damaged_file_lets_nobody_in(tmp_path: Path, content: bytes):
    path = tmp_path / "users"
    path.write_bytes(content)
    with pytest.raises(OperationalError):
        Users(path)


@pytest.mark.parametrize("text", ["", "md5abc", "SCRAM-SHA-256$1:YQ==$YQ==:YQ=="])
def test_a_verifier_that_is_none_is_refused(text):
    with pytest.raises(DataError):
        Verifier.read(text)


@pytest.mark.parametrize("name", ["", "x" * 64, "a\0b"])
def test_a_name_that_no_client_could_send_is_refused(tmp_path: Path, name: str):
    with pytest.raises(DataError):
        Users(tmp_path / "users").add(name, "secret")

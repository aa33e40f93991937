"""SCRAM-SHA-256, the server's half (RFC 5802, 7677), as in PostgreSQL.

    SaltedPassword = PBKDF2(password, salt, iterations)
    StoredKey = H(HMAC(SaltedPassword, "Client Key"))
    ServerKey = HMAC(SaltedPassword, "Server Key")
    proof is right   <=>   H(proof xor HMAC(StoredKey, messages)) = StoredKey

A server keeps StoredKey and ServerKey, from which nobody can log in.

It is written here because the package for it, scramp 1.5, refuses the empty user name that libpq
and all that is built on it send (the name is in the startup message instead).  The cryptography
is the standard library's, and the tests hold it against scramp's client and real drivers.

``SCRAM-SHA-256-PLUS`` binds the exchange to the server's certificate (RFC 5929,
``tls-server-end-point``), so that nobody in the middle can pass it on.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from dataclasses import dataclass

from privsql.errors import DataError
from privsql.fronts.pgwire.errors import PasswordError, ProtocolError

PLAIN = "SCRAM-SHA-256"
BOUND = "SCRAM-SHA-256-PLUS"
BINDING = "tls-server-end-point"

# PostgreSQL's own number is 4096; some drivers do this in an interpreted loop.
ITERATIONS = 10_000
SALT = 16
LONGEST_PASSWORD = 1000

_PROHIBITED = (
    stringprep.in_table_a1,  # unassigned
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


@dataclass(frozen=True)
class Verifier:
    """What a server keeps of a password.

    >>> made = verifier("secret", salt=bytes(16), iterations=4096)
    >>> Verifier.read(str(made)) == made
    True
    """

    iterations: int
    salt: bytes
    stored: bytes
    server: bytes

    def __str__(self) -> str:
        """As PostgreSQL writes it into its own table."""
        salt, stored, server = (_base64(v) for v in (self.salt, self.stored, self.server))
        return f"{PLAIN}${self.iterations}:{salt}${stored}:{server}"

    def __repr__(self) -> str:
        """Without the keys, which belong in no log."""
        return "Verifier(...)"

    @classmethod
    def read(cls, text: str) -> Verifier:
        """Read what ``str`` wrote."""
        try:
            name, first, second = text.split("$")
            iterations, salt = first.split(":")
            stored, server = second.split(":")
            made = cls(int(iterations), *(_bytes(v) for v in (salt, stored, server)))
            if name != PLAIN or len(made.stored) != 32 or len(made.server) != 32 or not made.salt:
                raise ValueError
        except ValueError:
            raise DataError("a password's verifier cannot be read") from None
        return made


def verifier(password: str, *, salt: bytes | None = None, iterations: int = ITERATIONS) -> Verifier:
    """Make a verifier of a password, which is then forgotten."""
    if not password or len(password) > LONGEST_PASSWORD:
        raise DataError(f"a password has between 1 and {LONGEST_PASSWORD} characters")
    salt = secrets.token_bytes(SALT) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)
    stored = hashlib.sha256(_mac(salted, b"Client Key")).digest()
    return Verifier(iterations, salt, stored, _mac(salted, b"Server Key"))


def mock(name: str, secret: bytes) -> Verifier:
    """The verifier of a user who does not exist.

    Always the same for one name, so that asking twice tells nothing; no password fits, because
    nobody knows what hashes to its keys.
    """
    parts = [_mac(secret, word + name.encode("utf-8", "replace")) for word in (b"s", b"k", b"v")]
    return Verifier(ITERATIONS, parts[0][:SALT], parts[1], parts[2])


def prepared(password: str) -> str:
    r"""SASLprep (RFC 4013); what it prohibits stays as it is, as in PostgreSQL.

    >>> prepared("I\u00adX"), prepared("\u2168")
    ('IX', 'IX')
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(c) else c for c in password if not stringprep.in_table_b1(c)
    )
    made = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not made or any(test(c) for c in made for test in _PROHIBITED):
        return password
    # Letters from right to left stand alone, and at both ends.
    mixed = any(map(stringprep.in_table_d1, made)) and (
        any(map(stringprep.in_table_d2, made))
        or not (stringprep.in_table_d1(made[0]) and stringprep.in_table_d1(made[-1]))
    )
    return password if mixed else made


def binding_of(certificate: bytes) -> bytes:
    """The data of ``tls-server-end-point``: the hash of a certificate (PEM)."""
    # Here, because a server without a certificate has no use for it.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    found = x509.load_pem_x509_certificate(certificate)
    used = found.signature_hash_algorithm
    name = "sha256" if used is None or used.name in ("md5", "sha1") else used.name
    return hashlib.new(name, found.public_bytes(Encoding.DER)).digest()


class Exchange:
    """One attempt to log in.  Every failure is the same ``PasswordError`` at the same point."""

    def __init__(self, kept: Verifier, *, real: bool, user: str, binding: bytes | None) -> None:
        self._kept, self._real, self._user = kept, real, user
        self._binding = binding  # None where there is no TLS
        self._header = b""
        self._bound = False
        self._nonce = ""
        self._said = ""

    def mechanisms(self) -> tuple[str, ...]:
        """What may be chosen."""
        return (PLAIN,) if self._binding is None else (BOUND, PLAIN)

    def first(self, mechanism: str, data: bytes) -> bytes:
        """The client's first message; returns ours."""
        if mechanism not in self.mechanisms():
            raise ProtocolError("this authentication mechanism is not supported")
        parts = _ascii(data).split(",", 2)
        if len(parts) != 3:
            raise ProtocolError("the first message of the exchange cannot be read")
        flag, other, bare = parts
        self._bound = mechanism == BOUND
        if other:
            raise ProtocolError("one user cannot log in as another")
        fits = flag == f"p={BINDING}" if self._bound else flag in ("n", "y")
        if not fits or (flag == "y" and self._binding is not None):
            # "y": somebody took our other mechanism out of the list that the client saw.
            raise ProtocolError("the exchange is bound to another channel, or to none")
        fields = _fields(bare)
        nonce = fields.get("r", "")
        if not nonce or "m" in fields or not bare.startswith("n="):
            raise ProtocolError("the first message of the exchange cannot be read")
        self._header = f"{flag},,".encode()
        self._nonce = nonce + _base64(secrets.token_bytes(18))
        ours = f"r={self._nonce},s={_base64(self._kept.salt)},i={self._kept.iterations}"
        self._said = f"{bare},{ours}"
        return ours.encode()

    def final(self, data: bytes) -> bytes:
        """The client's last message; returns ours, which proves that we know the user."""
        without, comma, proof = _ascii(data).rpartition(",p=")
        fields = _fields(without)
        try:
            given, header = _bytes(proof), _bytes(fields.get("c", ""))
            if not comma or len(given) != 32:
                raise ValueError
        except ValueError:
            raise ProtocolError("the last message of the exchange cannot be read") from None
        wanted = self._header + ((self._binding or b"") if self._bound else b"")
        messages = f"{self._said},{without}".encode()
        signature = _mac(self._kept.stored, messages)
        key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        right = hmac.compare_digest(hashlib.sha256(key).digest(), self._kept.stored)
        same = hmac.compare_digest(fields.get("r", "").encode(), self._nonce.encode())
        bound = hmac.compare_digest(header, wanted)
        if not (right & same & bound & self._real):
            # The one answer to a wrong password, an unknown user and a tampered exchange.
            raise PasswordError(f'password authentication failed for user "{self._user}"')
        return b"v=" + _base64(_mac(self._kept.server, messages)).encode()


def _fields(text: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _ascii(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProtocolError("a message of the exchange is not text") from None


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)

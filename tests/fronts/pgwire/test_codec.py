"""Messages: bytes to fields and back; what is no message is an error and nothing else."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsql.errors import Error
from privsql.fronts.pgwire.errors import ProtocolError
from privsql.fronts.pgwire.protocol import codec


def test_parse_reads_name_text_and_types():
    body = b"s1\0SELECT $1\0" + struct.pack("!HII", 2, 23, 4294967295)
    assert codec.parse(body) == codec.Parse("s1", "SELECT $1", (23, 4294967295))


def test_bind_reads_formats_values_and_result_formats():
    body = b"p\0s\0" + struct.pack("!Hh", 1, 1) + struct.pack("!Hi", 2, 2) + b"ab"
    body += struct.pack("!i", -1) + struct.pack("!Hhh", 2, 0, 1)
    assert codec.bind(body) == codec.Bind("p", "s", (1,), (b"ab", None), (0, 1))


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (codec.parse, b"name without an end"),
        (codec.parse, b"\0\xff\xfe\0\0\0"),
        (codec.parse, b"\0SELECT\0\0\x02\0\0\0\x17"),
        (codec.parse, b"\0SELECT\0\0\0extra"),
        (codec.bind, b"\0\0\0\x01\0\x02\0\0\0\0"),  # format 2
        (codec.bind, b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),  # length -2
        (codec.bind, b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0"),  # longer than the message
        (codec.bind, b"\0\0\0\x02\0\0\0\0\0\x01\0\0\0\0\0\0"),  # two formats, one value
        (codec.named, b"X\0"),
        (codec.execute, b"\0\0\0"),
        (codec.startup, b"user\0ann\0"),
        (codec.one_text, b"a\0b\0"),
    ],
)
def test_what_is_no_message_is_refused(read, body):
    with pytest.raises(ProtocolError):
        read(body)


@given(st.binary(max_size=60))
def test_no_bytes_do_anything_else_than_be_refused(body):
    for read in (
        codec.parse,
        codec.bind,
        codec.named,
        codec.execute,
        codec.startup,
        codec.one_text,
    ):
        try:
            read(body)
        except Error as problem:
            assert problem.sqlstate == "08P01"  # noqa: PT017 - anything else fails the test


def test_a_description_has_all_fields_of_a_column():
    made = codec.row_description([("n", 3_000_000_000, 2, 1700, -1, 327686, 1)])
    assert made == b"T" + struct.pack("!iH", 4 + 2 + 2 + 18, 1) + b"n\0" + struct.pack(
        "!IhIhih", 3_000_000_000, 2, 1700, -1, 327686, 1
    )


def test_a_text_that_holds_a_zero_byte_does_not_end_early():
    made = codec.fields(b"E", {"M": "a\0b"})
    assert made.endswith(b"Ma b\0\0")

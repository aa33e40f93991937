"""A statement on a thread of its own."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from privsql.errors import DataError, InternalError, OperationalError
from privsql.fronts.shell.execution import cancelable


def test_what_comes_of_a_call_comes_out():
    assert cancelable(lambda: 7, lambda: None) == 7

    def wrong() -> None:
        raise DataError("too odd")

    with pytest.raises(DataError, match="too odd"):
        cancelable(wrong, lambda: None)


def test_a_mistake_of_ours_is_told_without_its_words():
    """They may quote the data."""
    with pytest.raises(InternalError, match="KeyError") as caught:
        cancelable(lambda: {}["secret"], lambda: None)
    assert "secret" not in str(caught.value)


def test_ctrl_c_interrupts_until_it_is_heard():
    """The first interruption may come before anybody listens."""
    heard, deaf = threading.Event(), [1, 2]

    def interrupt() -> None:
        if deaf:
            deaf.pop()
        else:
            heard.set()

    def call() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert heard.wait(30)
        raise OperationalError("canceled")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(OperationalError, match="canceled"):
        cancelable(call, interrupt)
    assert signal.getsignal(signal.SIGINT) is before

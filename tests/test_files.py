"""Files that are written whole or not at all, and locks between processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from privsql.errors import OperationalError
from privsql.files import check_target, commit, lock, made_whole, unlock, written


def test_a_target_is_checked_before_any_work(tmp_path):
    there = tmp_path / "there"
    there.write_text("mine")
    check_target(tmp_path / "new", force=False)
    check_target(there, force=True)
    for target, said in (
        (there, "exists already"),
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "new", "there is no folder"),
        (Path("/dev/null"), "is not a regular file"),
        (tmp_path / "nul\0", "not a path"),
    ):
        with pytest.raises(OperationalError, match=said):
            check_target(target, force=False)
    check_target(Path("/dev/null"), force=False, device=True)
    with pytest.raises(OperationalError, match="is an input of this command"):
        check_target(there, force=True, sources=(tmp_path / "." / "there",))


def test_a_database_may_leave_files_beside_what_it_makes(tmp_path):
    """All that was made for the file goes, whatever it is called."""
    with made_whole(tmp_path / "a", force=False) as made:
        made.write_text("whole")
        made.with_suffix(".wal").write_text("left over")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "whole"


def test_what_the_system_refuses_is_our_error_and_changes_nothing(tmp_path):
    (tmp_path / "a").write_text("old")

    def half() -> None:
        with written(tmp_path / "a", force=True) as stream:
            stream.write(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OperationalError, match=r"cannot write beside .*: no space left"):
        half()
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_secret_file_is_its_owners_alone(tmp_path):
    with written(tmp_path / "a", force=False, mode=0o600) as stream:
        stream.write(b"secret")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_commit_replaces(tmp_path):
    (tmp_path / "made").write_text("new")
    (tmp_path / "a").write_text("old")
    commit(tmp_path / "made", tmp_path / "a")
    assert (os.listdir(tmp_path), (tmp_path / "a").read_text()) == (["a"], "new")


def held_by_another(path: Path, **how: bool) -> bool:
    """Whether another process cannot take the lock."""
    code = (
        "import os, sys\nfrom privsql.files import lock\n"
        "lock(os.open(sys.argv[1], os.O_RDWR), shared=sys.argv[2] == 'True')\n"
    )
    command = [sys.executable, "-c", code, str(path), str(how.get("shared", False))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        assert "BlockingIOError" in done.stderr
    return done.returncode != 0


def test_a_lock_keeps_other_processes_out_until_it_is_released(tmp_path):
    path = tmp_path / "lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        lock(handle)
        assert held_by_another(path)
        lock(handle, shared=True)
        assert held_by_another(path)
        assert not held_by_another(path, shared=True)
        unlock(handle)
        assert not held_by_another(path)
    finally:
        os.close(handle)

"""Files that cannot be linked are copied: whole, apart, and gone when nobody needs them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from privsql.errors import OperationalError
from privsql.fronts.pgwire.releases import PREFIX, House
from tests.fronts.pgwire.conftest import SMALL

COUNT = "SELECT count(*) AS n FROM patients"


@pytest.fixture
def unlinked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """No file can be linked, as on another file system; where that was tried."""
    tried: list[Path] = []

    def link(_: Any, made: Path) -> None:
        tried.append(made)
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    return tried


@pytest.fixture
def served(release: Path, tmp_path: Path) -> Path:
    (tmp_path / "releases").mkdir()
    return Path(shutil.copyfile(release, tmp_path / "releases" / "served.duckdb"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "links"
    made.mkdir()
    return made


def files(*folders: Path) -> list[Path]:
    """What is kept of releases, below the private folders."""
    found = [each for folder in folders for each in folder.glob(f"{PREFIX}*/*")]
    return [each for each in found if each.name != "lock"]


def test_a_copy_is_served_and_given_back(unlinked: list[Path], served: Path, folder: Path):
    house = House([served], limits=SMALL, folder=folder)
    version = house.versions()["patients"]
    assert {path.parent.parent for path in unlinked} == {folder, served.parent}
    assert files(folder, served.parent) == [version.path]
    assert version.path.read_bytes() == served.read_bytes()
    assert version.path.stat().st_ino != served.stat().st_ino
    assert version.path.parent.stat().st_mode & 0o077 == 0  # nobody else's
    # Published again: the old copy goes with its last answer, the new one is another file.
    with house.lease(version, "ann") as session:
        shutil.copyfile(served, folder / "again")
        (folder / "again").replace(served)
        assert house.refresh() == ["patients"]
        assert len(files(folder, served.parent)) == 2
        assert session.run(COUNT).table.num_rows == 1
    assert files(folder, served.parent) == [house.versions()["patients"].path]
    house.close()
    assert not list(folder.glob(f"{PREFIX}*"))
    assert not list(served.parent.glob(f"{PREFIX}*"))


@pytest.mark.parametrize("beside", [True, False], ids=["room beside it", "no room"])
def test_half_a_copy_is_removed(
    unlinked: list[Path],
    served: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    beside: bool,
):
    copied = shutil.copyfile

    def full(source: Path, made: Path) -> Path:
        if beside and made.is_relative_to(served.parent):
            return copied(source, made)
        made.write_bytes(source.read_bytes()[:1000])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    if beside:
        house = House([served], limits=SMALL, folder=folder)
        assert files(folder, served.parent) == [house.versions()["patients"].path]
        house.close()
    else:
        with pytest.raises(OperationalError, match=r"no room for a copy of served\.duckdb"):
            House([served], limits=SMALL, folder=folder)
    assert not list(folder.glob(f"{PREFIX}*"))
    assert not list(served.parent.glob(f"{PREFIX}*"))


def test_a_release_that_cannot_be_copied_any_more_stays_as_it_was(
    unlinked: list[Path], served: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    house = House([served], limits=SMALL, folder=folder)
    version = house.versions()["patients"]
    shutil.copyfile(served, folder / "again")
    (folder / "again").replace(served)

    def full(_: Path, made: Path) -> Path:
        made.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    assert house.refresh() == []
    assert house.versions()["patients"] is version
    assert files(folder, served.parent) == [version.path]
    with house.lease(version, "ann") as session:
        assert session.run(COUNT).table.num_rows == 1
    house.close()


def test_a_version_that_was_replaced_is_asked_for_its_successor(served: Path, folder: Path):
    """Who knew the old version gets a session of the new one, and it is counted as such."""
    house = House([served], limits=SMALL, folder=folder)
    old = house.versions()["patients"]
    shutil.copyfile(served, folder / "again")
    (folder / "again").replace(served)
    assert house.refresh() == ["patients"]
    new = house.versions()["patients"]
    with house.lease(old, "ann") as first:
        assert first.run(COUNT).table.num_rows == 1
    assert (old.sessions, new.sessions) == (0, 1)
    with house.lease(new, "ann") as second:
        assert second is first  # kept for the next statement
    house.close()
    assert not list(folder.glob(f"{PREFIX}*"))

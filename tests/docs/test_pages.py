"""Every page of the guides is followed to the letter."""

from __future__ import annotations

import runpy

import pytest

from tests.docs.pages import ROOT, begin, follow, read

# These pages want a server or are generated; tests/test_docs.py and test_operation.py follow them.
ELSEWHERE = ("bi.md", "functions.md", "operation.md")
# Two tutorials are followed by `make test`, all of them by `make soak`.
SLOW = ("tutorial-learn.md", "tutorial-panel.md")
PAGES = [
    pytest.param(path, marks=[pytest.mark.soak] if path.name in SLOW else [], id=path.name)
    for path in sorted((ROOT / "docs").glob("*.md"))
    if path.name not in ELSEWHERE
]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_true(path, demo, tmp_path):
    page = read(path)
    folder = tmp_path / "followed"
    begin(page, folder, demo)
    follow(page, folder)


def test_an_untrue_page_is_found(tmp_path):
    """The follower itself can fail."""
    (tmp_path / "page.md").write_text("```sh\necho one\n```\n\n```\ntwo\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        follow(read(tmp_path / "page.md"), tmp_path)
    (tmp_path / "page.md").write_text("```sh\nrm -r x\n```\n")
    with pytest.raises(AssertionError, match="no test runs"):
        follow(read(tmp_path / "page.md"), tmp_path)


def test_the_tables_of_the_tutorials_are_what_their_program_makes():
    """On a change: python examples/data/make.py."""
    folder = ROOT / "examples" / "data"
    made = runpy.run_path(str(folder / "make.py"))
    assert {path.stem for path in folder.glob("*.csv")} == set(made["TABLES"])
    for name in made["TABLES"]:
        stored = (folder / f"{name}.csv").read_bytes()
        assert stored == made["text"](name), name
        assert len(stored) < 300_000


def test_the_notebook_runs_and_holds_what_it_prints(tmp_path):
    """It is stored with its output, which a seed keeps as it is; pictures may differ in bytes."""
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    stored = nbformat.read(ROOT / "examples" / "05_notebook.ipynb", 4)
    fresh = nbformat.from_dict(stored)
    beside = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(fresh, timeout=300, kernel_name="python3", resources=beside).execute()
    for before, after in zip(stored.cells, fresh.cells, strict=True):
        if before.cell_type == "code":
            assert _shown(before) == _shown(after)
    assert sum("image/png" in kinds for cell in fresh.cells for kinds, _ in _shown(cell)) == 2


def _shown(cell) -> list[tuple[list[str], str]]:
    """Kinds and text of what a cell put out."""
    return [
        (sorted(out.get("data", {})), out.get("text", out.get("data", {}).get("text/html", "")))
        for out in cell.get("outputs", [])
    ]

"""The README is followed from top to bottom, its server and its prompts included."""

from __future__ import annotations

import shutil
from contextlib import ExitStack

from tests.docs.pages import ROOT, lines_of, python, read, stripped
from tests.docs.serving import Followed

# Run elsewhere: targets of make by test_docs, an installation by test_packaging.
TYPED = ("privsql ", "psql ", "printf ")
APART = ("make ", "pip install .")


def test_the_readme_is_true(demo, tmp_path):
    page, made = read(ROOT / "README.md"), Followed(tmp_path)
    told = 0
    with ExitStack() as running:
        for step in page.steps:
            if step.language == "python":
                printed = python(step, tmp_path)
            else:
                printed = ""
                for line in lines_of(step.code):
                    if line.startswith(APART):
                        continue
                    if line == "privsql demo":  # which was run to make this folder
                        shutil.copytree(demo, tmp_path / demo.name)
                        continue
                    if line.startswith("psql ") and shutil.which("psql") is None:
                        break
                    assert line.startswith(("privsql ", "psql ", "printf ")), (
                        f"{step}: nobody runs {line!r}"
                    )
                    if line.startswith("privsql serve "):
                        running.enter_context(made.serving(line))
                    else:
                        printed += made.typed(line, refused="ERROR " in (step.output or ""))
            if step.output is not None and printed:
                assert stripped(printed) == stripped(step.output), str(step)
                told += 1
    assert told >= 4

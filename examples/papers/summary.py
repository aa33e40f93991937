"""docs/papers.md: what became of each table and figure, from results/*.json.

Run ``python examples/papers/summary.py`` after the scripts of the papers.
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
ORDER = ("olap", "learning", "fine", "recon", "splu")


def summary(folder: Path = HERE) -> str:
    """The table of all findings, after the words of papers.head.md."""
    lines = [(HERE / "papers.head.md").read_text().rstrip("\n"), ""]
    for paper in ORDER:
        path = folder / "results" / f"{paper}.json"
        if not path.exists():
            continue
        whole = json.loads(path.read_text())
        lines += [f"### [{whole['title']}](../examples/papers/{paper}.md)", ""]
        lines += ["| item | the paper | here | verdict |", "|---|---|---|---|"]
        for found in whole["findings"]:
            told = found["verdict"] + (f": {found['why']}" if found["why"] else "")
            data = f" ({found['data']})" if found["data"] else ""
            cells = (found["item"], found["statement"], found["ours"] + data, told)
            lines.append("| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    (HERE.parents[1] / "docs" / "papers.md").write_text(summary())

"""Lines of code of the product: ``python -m tests.lines [FOLDER ...]``.

A line counts where it holds a token of code; docstrings, comments, blank lines and imports do not.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(text: str) -> int:
    """Lines of one module.

    >>> lines_of_code('"Docstring."\\nimport os\\n\\nx = (\\n    1,  # one\\n)\\n')
    3
    """
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if alone or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - left_out)


def main(folders: list[str]) -> None:
    """Print the lines of each package, and of all of them."""
    found: Counter[str] = Counter()
    for folder in folders:
        for path in Path(folder).rglob("*.py"):
            found["/".join(path.parts[:2])] += lines_of_code(path.read_text("utf-8"))
    for package, lines in sorted(found.items()):
        print(f"{lines:7,} {package}")
    print(f"{found.total():7,} lines of code")


if __name__ == "__main__":
    main(sys.argv[1:] or ["privsql", "udfs"])

"""Print the lines of code by room: Python and .pxd, without blanks, comments and docstrings.

python .ci/lines.py
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
_SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of(path: Path) -> int:
    """Return the number of lines of code in a file."""
    text = path.read_text()
    if path.suffix == ".pxd":  # which is no Python, and has comments at the beginning of lines only
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())
    found = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _SKIPPED
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
            found -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def main() -> None:
    """Print a line for each room, and the sum."""
    rooms, files = Counter[str](), Counter[str]()
    for top in ("streamcal", "connectors"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".py", ".pxd"):
                room = str(path.parent.relative_to(ROOT))
                rooms[room] += lines_of(path)
                files[room] += 1
    for room, lines in sorted(rooms.items()):
        sys.stdout.write(f"{lines:7,} {files[room]:4} {room}\n")
    pairs = len(list((ROOT / "streamcal").rglob("*.pxd")))
    sys.stdout.write(f"{rooms.total():7,} lines of code in {files.total()} files; {pairs} compiled pairs\n")


if __name__ == "__main__":
    main()

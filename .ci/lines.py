"""Print the lines of code by room: Python and .pxd, without blanks, comments and docstrings; and the arrows.

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


_DOORS = {"cli", "frames", "onnx", "river", "serve", "sklearn", "spark", "sql", "__init__", "__main__"}


def arrows() -> set[tuple[str, str]]:
    """Return which room of streamcal imports which; the doors are one (docs/architecture.md)."""
    found = set()
    for path in (ROOT / "streamcal").rglob("*.py"):
        room = path.relative_to(ROOT / "streamcal").with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamcal."):
                found.add((room, str(node.module).split(".")[1]))
    named = {tuple("doors" if room in _DOORS else room for room in arrow) for arrow in found}
    return {(room, other) for room, other in named if room != other}


def main() -> None:
    """Print a line for each room, and the sums."""
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
    between = arrows()
    sys.stdout.write(f"{len({room for arrow in between for room in arrow}):7} rooms, {len(between)} arrows\n")


if __name__ == "__main__":
    main()

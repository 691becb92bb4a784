"""Check that docstrings begin with a noun or a verb, not with a word that leans on a question or a name.

``What``, ``How`` or ``That of`` make the reader look for what is meant. Attributes have docstrings, too: a
text behind an assignment.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
REFUSED = {"Of", "That", "Those", "What", "How", "None", "So"}


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that stands alone as a statement."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield node.lineno, text.strip()


def problems(path: Path) -> list[str]:
    """Return a message for each docstring of a file that begins with a refused word."""
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}:{line}: begins with {text.split(maxsplit=1)[0]!r}: {text.splitlines()[0]}"
        for line, text in docstrings(path.read_text(encoding="utf-8"))
        if text and text.split(maxsplit=1)[0].rstrip(".,:;") in REFUSED
    ]


def main() -> int:
    """Print what is wrong; return 1 if anything is."""
    messages = [
        message
        for folder in ("streamcal", "connectors")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for message in problems(path)
    ]
    for message in messages:
        sys.stdout.write(message + "\n")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())

"""Check that docstrings begin with a noun or a verb, not with a word that leans on a question or a name.

``What``, ``How`` or ``That of`` make the reader look for what is meant. Attributes have docstrings, too: a
text behind an assignment. Files that are not clean yet are named in ``docstrings.txt``; that list only
shrinks.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LISTED = Path(__file__).with_suffix(".txt")
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
    listed = set(LISTED.read_text(encoding="utf-8").split()) if LISTED.exists() else set()
    found = {
        path.relative_to(ROOT).as_posix(): problems(path)
        for folder in ("streamcal", "connectors")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    messages = [message for name, each in found.items() if name not in listed for message in each]
    clean = [
        f"{name}: clean or gone; remove it from {LISTED.name}"
        for name in sorted(listed)
        if not found.get(name)
    ]
    for message in messages + clean:
        sys.stdout.write(message + "\n")
    return 1 if messages or clean else 0


if __name__ == "__main__":
    sys.exit(main())

"""Check the prose of README, CONTRIBUTING and docs/: short lines, short sentences, plain words, few words.

Vale would do it, but its package on the index fetches a binary at the first call, past the locked hashes.
Exceptions are in ``prose.txt``: a file, a rule (``line``, ``sentence``, ``word``, ``opening``), the reason.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LISTED = Path(__file__).with_suffix(".txt")
PAGES = ["README.md", "CONTRIBUTING.md", "docs/*.md", "docs/api/*.md", "docs/proofs/*.md"]
BUDGET = 27_000  # words of README and docs/*.md, but for these:
UNCOUNTED = {"docs/benchmarks.md", "docs/paper.md", "CONTRIBUTING.md"}
LONGEST_LINE = 120  # characters; tables and code may be longer
LONGEST_SENTENCE = 30  # words
OPENINGS = re.compile(r"(Of|That of|Those|What|How|None) [^?]*$")
WORDY = re.compile(
    r"\b(in order to|utili[sz]\w+|leverag\w+|due to the fact|prior to|subsequent\w*|note that|please"
    r"|basically|simply|obviously|of course|methodology|functionality|in the event that|with respect to"
    r"|whilst|thereof)\b",
    re.IGNORECASE,
)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page, without code, tables and headings; a formula counts as one word."""
    text = re.sub(r"^```.*?^```|^<!--.*?-->|^ {4}\S.*?$|^[|#!].*?$", "", text, flags=re.M | re.S)
    text = re.sub(r"`[^`]+`", "code", re.sub(r"\]\([^)]*\)", "]", text))
    for block in re.split(r"\n\s*\n|\n\s*(?:[*-]|\d+\.) ", text):
        yield from re.split(r"(?<=[.!?…])[)*\]]*\s+", " ".join(block.split()))


def problems(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the rule and the message for each thing that is wrong in a page."""
    prose = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), text, flags=re.M | re.S)
    for number, line in enumerate(prose.splitlines(), 1):
        if len(line) > LONGEST_LINE and not line.startswith(("|", "    ", "[")):
            yield "line", f"{name}:{number}: {len(line)} characters, at most {LONGEST_LINE}"
    for each in sentences(text):
        words = [word for word in each.split() if re.search(r"\w", word)]
        if len(words) > LONGEST_SENTENCE:
            yield "sentence", f"{name}: {len(words)} words, at most {LONGEST_SENTENCE}: {each[:70]} …"
        if OPENINGS.match(each):
            yield "opening", f"{name}: begins with {each.split()[0]!r}: {each[:70]} …"
        for found in WORDY.finditer(each):
            yield "word", f"{name}: {found[0]!r} has a shorter or no word: {each[:70]} …"


def main() -> int:
    """Print what is wrong; return 1 if anything is."""
    rows = [line.split(maxsplit=2) for line in LISTED.read_text(encoding="utf-8").splitlines() if line]
    listed, found, words = {(file, rule) for file, rule, _ in rows}, set(), 0
    for path in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        words += 0 if name in UNCOUNTED or name.count("/") > 1 else len(text.split())
        for rule, message in problems(name, text):
            found.add((name, rule))
            if (name, rule) not in listed:
                sys.stdout.write(f"{message} ({rule})\n")
    for file, rule in sorted(listed - found):
        sys.stdout.write(f"{file} {rule}: clean or gone; remove it from {LISTED.name}\n")
    if words > BUDGET:
        sys.stdout.write(f"{words:,} words in README and docs/, at most {BUDGET:,}: move, link or cut\n")
    return 1 if listed ^ found or words > BUDGET else 0


if __name__ == "__main__":
    sys.exit(main())

"""Why events were rejected, by kind: without the ids and numbers in which the reasons of a kind differ."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["MOST_KINDS", "OTHER", "count_reasons", "kind_of"]

MOST_KINDS: Final = 30
"""How many kinds are told apart; what comes after them is counted as `OTHER`."""

OTHER: Final = "other reasons"

_LONGEST: Final = 120  # characters of a kind
_VARIES: Final = re.compile(
    r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?!\w)"""  # quoted, as by repr()
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z| UTC)?"  # a moment
    r"|(?<![\w.-])[+-]?\d[\d_,.]*(?:[eE][+-]?\d+)?(?![\w])"  # a number
)
_KEPT: Final = frozenset(("0", "1", "0,", "8601"))  # of "0 or 1", "[0, 1]", "ISO 8601": parts of a rule


def kind_of(reason: str) -> str:
    """Return a reason without what varies within its kind.

    Examples
    --------
    >>> kind_of("a score must be a number in [0, 1], got 1.5")
    'a score must be a number in [0, 1]'
    >>> kind_of("unmatched label: no prediction with id 'u-2118' has come")
    'unmatched label: no prediction with id … has come'
    """
    rule = reason.partition(", got ")[0]
    kind = _VARIES.sub(lambda found: found[0] if found[0] in _KEPT else "…", rule)
    return kind if len(kind) <= _LONGEST else f"{kind[:_LONGEST]}…"


def count_reasons(counts: dict[str, int], reasons: Iterable[str]) -> None:
    """Count reasons by their kind."""
    for reason in reasons:
        kind = kind_of(reason)
        if kind not in counts and len(counts) >= MOST_KINDS:
            kind = OTHER
        counts[kind] = counts.get(kind, 0) + 1

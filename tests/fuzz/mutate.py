"""Mutators: each changes one place of a value, of bytes, or of text. All randomness is that of the caller."""

from __future__ import annotations

import copy
import math
import random
import struct
from collections.abc import Callable
from typing import Any, Final

INTEGERS: Final = (0, 1, -1, 2, 63, 64, 127, 255, 4096, 65_536, 2**31 - 1, 2**31, 2**32, 2**48, 2**53 + 1)
HUGE: Final = (2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63), 10**12)
REALS: Final = (0.0, -0.0, 0.5, 1.0, 1.0 + 2**-52, -1e-300, 5e-324, 1e-6, 1e25, 1.7e308, math.inf, -math.inf)
TEXTS: Final = (
    *("", "a", "source", "target", "adwin", "0", "1e5", "\x00", "\ud7ff", "é" * 300, "x" * 5000, "P1D"),
)
OTHERS: Final = (None, True, False, math.nan, [], {}, b"", [[]], {"a": 1})

Container = dict[Any, Any] | list[Any]


def change_scalar(value: Any, rng: random.Random) -> Any:
    """Return another value: near the given one, at an edge of a type, or of another type."""
    if isinstance(value, bool) or value is None:
        return rng.choice([True, False, *OTHERS, *INTEGERS, *TEXTS])
    if isinstance(value, int) and rng.random() < 0.6:
        near = (value + 1, value - 1, -value, value * 2, value // 2, value + 64, value << 20)
        return rng.choice((*near, *INTEGERS, *HUGE))
    if isinstance(value, float) and rng.random() < 0.6:
        near = (-value, value * 2, value / 2, 1.0 - value, value + 1e-9, value * 1e9)
        return rng.choice((*near, *REALS, math.nan))
    if isinstance(value, str) and rng.random() < 0.6:
        return rng.choice((*TEXTS, value + "x", value[:-1], value * 2))
    return rng.choice((*OTHERS, *INTEGERS, *HUGE, *REALS, *TEXTS))


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes that hold an array of numbers, of 1, 2, 4 or 8 bytes each, with one of them changed."""
    width = rng.choice([each for each in (1, 2, 4, 8) if not len(data) % each])
    items = [data[i : i + width] for i in range(0, len(data), width)]
    kind = rng.randrange(8)
    if not items or kind == 0:
        return data + rng.choice((data, bytes(width), rng.randbytes(width), bytes(64), b"\x01" * width))
    at = rng.randrange(len(items))
    if kind == 1:
        del items[at]
    elif kind == 2:
        items = items[:at]
    elif kind == 3:
        other = rng.randrange(len(items))
        items[at], items[other] = items[other], items[at]
    elif kind == 4:
        items.insert(at, items[at])
    elif kind == 5 and width == 8:
        (value,) = struct.unpack("<d", items[at])
        items[at] = struct.pack("<d", rng.choice((*REALS, math.nan, -value, value + 1.0)))
    else:
        bits = 8 * width
        value = int.from_bytes(items[at], "little")
        new = rng.choice(
            (0, 1, value + 1, value - 1, 1 << (bits - 1), (1 << bits) - 1, rng.getrandbits(bits))
        )
        items[at] = (new % (1 << bits)).to_bytes(width, "little")
    return b"".join(items)


def change_text(text: bytes, rng: random.Random) -> bytes:
    """Return text with something cut out, doubled, put in or exchanged; not necessarily valid UTF-8."""
    at, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    end = min(end, at + rng.choice((1, 2, 8, 64)))
    scraps = (b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\u0000", b"\\ud800", b"\x00", b"\xff", b"\xc3\xa9")
    more = (
        *(b"null", b"true", b"-", b"1e999", b"9" * 310, b"0.1", b"NaN", b"\n", b"\r", b" ", b"0_1"),
        b"[" * 2000,
    )
    new = rng.choice((b"", b"", *scraps, *more, text[at:end] * 2, rng.randbytes(3)))
    return text[:at] + new + text[end:]


def change_tree(
    root: Container, rng: random.Random, change_leaf: Callable[[Any, random.Random], Any]
) -> None:
    """Change one place of nested lists and dicts, in place; most often a leaf."""
    if not root:
        return
    container, name = _any_place(root, rng)
    value, kind = container[name], rng.random()
    if _children(value) is None and kind < 0.85:
        container[name] = change_leaf(value, rng)
    elif kind < 0.4 and isinstance(value, list):
        rng.choice((value.reverse, value.clear, lambda: value.extend(value[:64]), value.pop))()
    elif kind < 0.7:
        other, place = _any_place(root, rng)
        container[name] = copy.deepcopy(other[place])
    elif kind < 0.85:
        del container[name]
    elif isinstance(container, list):
        container.insert(name, value)
    else:
        container[rng.choice(("extra", *TEXTS))] = change_scalar(0, rng)


def _any_place(root: Container, rng: random.Random) -> tuple[Any, Any]:
    """Return a container and a name in it, found on a walk from the top: of small parts as of large ones."""
    container, name = root, _any_name(root, rng)
    while (inside := _children(container[name])) and rng.random() < 0.95:
        container, name = inside, _any_name(inside, rng)
    return container, name


def _any_name(container: Container, rng: random.Random) -> Any:
    return rng.choice(list(container)) if isinstance(container, dict) else rng.randrange(len(container))


def _children(value: Any) -> Container | None:
    """Return what a value holds that can be changed in place; None for a leaf."""
    inside = getattr(value, "inside", value)
    return inside if isinstance(inside, dict | list) and inside else None

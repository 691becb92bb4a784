"""Whether a field comes twice in an object, by one pass over the bytes: as a decoder of pairs says."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamcal.events.json_lines_c import are_distinct

NAMES = st.text(st.sampled_from('ab:"{ \\é'), max_size=2)
PAIRS = st.deferred(lambda: st.lists(st.tuples(NAMES, VALUES), max_size=4))
VALUES: st.SearchStrategy[Any] = st.deferred(
    lambda: st.none() | st.integers() | NAMES | st.lists(VALUES, max_size=3) | PAIRS.map(tuple)
)


def written(value: Any, space: str) -> str:
    """Return JSON in which a tuple of pairs is an object, whose names may be the same."""
    if isinstance(value, tuple):
        inside = (f"{space}{json.dumps(name)}{space}:{space}{written(each, space)}" for name, each in value)
        return "{" + ",".join(inside) + "}"
    if isinstance(value, list):
        return "[" + f"{space},".join(written(each, space) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def repeats(text: str) -> bool:
    found = list[bool]()
    json.loads(text, object_pairs_hook=lambda pairs: found.append(len({*dict(pairs)}) < len(pairs)))
    return any(found)


@given(PAIRS, st.sampled_from(["", " ", "\t\r\n "]))
def test_it_says_no_where_a_decoder_would(pairs: list[tuple[str, Any]], space: str) -> None:
    text = written(tuple(pairs), space)
    distinct = are_distinct(text.encode())
    assert not (distinct and repeats(text))
    names = json.dumps([name for name, _ in pairs], ensure_ascii=False)
    if not repeats(text) and "\\" not in text and text.count("{") < 8:
        assert distinct, names


def test_what_is_too_much_to_follow_is_not_called_distinct() -> None:
    many = "{" + ",".join(f'"{number}":0' for number in range(70)) + "}"
    assert not are_distinct(many.encode())
    assert not are_distinct(('{"a":' * 9 + "0" + "}" * 9).encode())
    assert are_distinct(b'{"a":1}\n{"a":2}')

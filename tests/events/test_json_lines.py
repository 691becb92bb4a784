"""Lines of JSON as columns: events as of the decoder of single lines, and answers as msgspec writes them."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.events import codec
from streamcal.events.blocks import Block
from streamcal.events.codec import JsonDecoder
from streamcal.events.columns import Columns
from streamcal.events.fields import with_time
from streamcal.run.rows import AnswerColumns, Answers, Recalibrated
from tests.fuzz.mutate import change_text

SPACE = st.sampled_from([b""] * 6 + [b" ", b"  "])
VALUES = st.sampled_from(
    [
        *rb"""0 1 0.5 1.0 -0 -0.0 -1 -2.5 01 1. .5 1e0 5e-1 1E+2 1e400 1e-400 0.30000000000000004
    0.12345678901234567890123 1700000000.25 1700000000000 1e20
    99999999999999999999999999999999999999999 9007199254740993 0.9007199254740993
    18446744073709551616 0.00000000000000000000000001 null true false nul "" "a" "source" "target"
    "sourcer" "\n" "\u00e9" "\ud800" "\x" "\ [] {} {"a":1}""".split(),
        *(b'"x y"', b'"\xc3\xa9"', b'"\xff"', b'"\xed\xa0\x80"', b'"\x7f"', b'"\x01"'),
        *(b'"%b"' % (b"k" * size) for size in (512, 1025)),
    ]
)
FIELD = st.sampled_from([b"id", b"score", b"label", b"time", b"key", b"domain", b"city", b"f0", b"odd"])


@st.composite
def lines(draw: st.DrawFn) -> list[bytes]:
    """Draw lines that are plain but for some; these are mutated, or have values of all kinds."""
    made = []
    seed = random.Random(draw(st.integers(0, 1 << 32)))
    for i in range(draw(st.integers(1, 5))):
        fields = {
            b"id": b'"a%d"' % i,
            b"score": b"0.%d" % (i + 1),
            b"time": b"%d" % i,
            b"label": b"%d" % (i % 2),
        }
        del fields[draw(st.sampled_from([b"label", b"score", b"time", b"id", b"label"]))]
        if draw(st.booleans()):
            fields[b"city"] = draw(st.sampled_from([b'"K\xc3\xb6ln"', b'"\\u004b"', b"3", b"null"]))
        if not draw(st.integers(0, 3)):
            fields[draw(FIELD)] = draw(VALUES)
        pairs = draw(st.permutations([b'"%b":%b%b' % (name, draw(SPACE), fields[name]) for name in fields]))
        line = b"{" + draw(SPACE) + (b"," + draw(SPACE)).join(pairs) + draw(SPACE) + b"}" + draw(SPACE)
        made.append(change_text(line, seed) if not draw(st.integers(0, 9)) else line)
    return made


@pytest.fixture(autouse=True)
def columns_of_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "FEWEST", 1)


@given(lines(), st.sampled_from([(), ("city",), ("f0", "city")]), st.booleans(), st.sampled_from([0, 1, 20]))
def test_columns_hold_the_events_of_single_lines(
    made: list[bytes], keep: tuple[str, ...], ended: bool, more: int
) -> None:
    """With many plain lines around, some may have another form, or be no events."""
    made += [b'{"id":"b%d","score":0.5,"time":%d}' % (i, i) for i in range(more * len(made))]
    block = b"\n".join(made) + b"\n" * ended
    texts = block.removesuffix(b"\n").split(b"\n")
    alone, whole = (JsonDecoder("target", Columns(keep=keep)) for _ in range(2))
    for decoder in alone, whole:  # both know these fields
        decoder.decode(b'{"id":"a","score":0.5,"city":1,"f0":1}')
    events = [alone.decode(text.removesuffix(b"\r")) for text in texts]
    found = whole.decode_lines(block, rejects=more > 0)
    if found is not None:
        assert list(found) == events
        assert repr(list(found)) == repr(events)  # -0.0 is 0.0, and 1 is 1.0
        assert whole.unknown_fields == alone.unknown_fields
    if isinstance(found, Block):
        times = [np.nan if event.time is None else event.time for event in events]
        np.testing.assert_array_equal(found.times, times)
        later = list(found.with_times(found.times + 1.0, {}))
        assert later == [with_time(event, time + 1.0) for event, time in zip(events, times, strict=True)]


def test_plain_lines_of_all_kinds_are_columns() -> None:
    decoder = JsonDecoder("target", Columns(keep=("note",)))
    decoder.decode(b'{"id":"a","score":0.5,"city":1}')
    block = (
        b'{"id":"a", "score": 0.5, "city": "K\xc3\xb6ln \\u00e9 \\"", "note": "\\u00fc"}\r\n'
        b'{"time":1.5e9,"label":1,"id":"a","key":"ignored","domain":"source"}\n'
        b'{"label":0,"score":1,"key":"k","note":3,"city":null}\n'
        b'{"id":"M\xc3\xbcller","domain":"target","score":5e-1,"time":null,"note":1.0,"city":[]}\n'
    )
    assert decoder.decode_lines(block) is None, "the city of the last line is a list"
    found = decoder.decode_lines(block := block.replace(b"[]", b"-1e-05"))
    assert type(found) is Block
    assert list(found) == [
        JsonDecoder("target", Columns(keep=("note",))).decode(line) for line in block.splitlines()
    ]
    assert decoder.unknown_fields == {"city": 4}


NUMBERS = st.one_of(
    st.floats(),
    st.sampled_from([0.0, -0.0, 1.0, 1e-5, 9.999e-6, 1e6, 999999.9999999999, 1e12, 1e15, 1e16, 0.1 + 0.2]),
    st.tuples(st.integers(0, 10**17), st.integers(0, 22)).map(lambda pair: pair[0] / 10.0 ** pair[1]),
    st.floats(1e-5, 10.0),
    st.tuples(st.integers(0, 20), st.integers(-3, 3)).map(
        lambda at: 2.0 ** (3 - at[0]) * (1 + at[1] * 2.0**-52)
    ),
)


NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1) | st.sampled_from(
    ['"', "\\", 'a"\\b']
)
ROWS = st.tuples(st.none() | NAMES, NUMBERS, NUMBERS, st.none() | NUMBERS, st.integers(0, 3))
RUNS = st.tuples(st.integers(0, 10**12), st.floats(0.0), st.floats(0.0), st.none() | NAMES)


@given(st.lists(ROWS, min_size=1), st.lists(RUNS, min_size=4, max_size=4))
def test_answers_are_written_as_msgspec_writes_them(rows: list[Any], runs: list[Any]) -> None:
    answers = [
        Recalibrated(id_, score, probability, runs[run][0], runs[run][1:3], runs[run][3], time)
        for id_, score, probability, time, run in rows
    ]
    wanted = msgspec.json.Encoder().encode_lines(answers)
    assert Answers(AnswerColumns.of(answers)).text() == wanted

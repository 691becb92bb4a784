"""No text raises out of a decoder, whatever it holds: nesting, huge numbers, sizes, control characters."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events import Event
from streamcal.events.codec import CsvDecoder, JsonDecoder, Malformed
from streamcal.events.columns import Columns
from tests.fuzz.lines import json_line

NINES = "9" * 310
HEADER = b"id,score,label,time,key,domain"

POISON = {
    "100,000 open brackets": ("[" * 100_000, "nested deeper than 100"),
    "1,000 deep in an unknown field": (
        '{"id":"a","score":0.5,"x":' + "[" * 1000 + "]" * 1000 + "}",
        "nested deeper than 100",
    ),
    "score of 5,000 digits": (
        '{"id":"a","score":' + "9" * 5000 + "}",
        "not JSON: Integer value out of range",
    ),
    "time of 310 digits": (
        '{"id":"a","score":0.5,"time":' + NINES + "}",
        "a time must be seconds since the epoch",
    ),
    "time 1e25": ('{"id":"a","score":0.5,"time":1e25}', "a time must be seconds since the epoch"),
    "lone surrogate": ('{"id":"\\ud800","score":0.5}', "not JSON"),
    "key of 600 KB": (
        '{"id":"a","score":0.5,"key":"' + "k" * 600_000 + '"}',
        "a key must be a string of 0 to 512 bytes",
    ),
    "NUL in an id": ('{"id":"a\\u0000","label":1}', "an id must be a string"),
    "long domain": ('{"id":"a","score":0.5,"domain":"' + "d" * 9999 + '"}', "a domain must be 'source' or"),
}


@pytest.mark.parametrize(("raw", "reason"), POISON.values(), ids=POISON.keys())
def test_a_poison_line_is_a_reject_with_its_reason(raw: str, reason: str) -> None:
    block = raw.encode()
    assert JsonDecoder().decode_lines(block + b"\n") is None
    refused = JsonDecoder().decode(block)
    assert isinstance(refused, Malformed), refused
    assert reason in refused.reason
    assert len(refused.reason) <= 400


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,0_1,,,,", "a score must be a number in [0, 1], got '0_1'"),
        ("a,inf,,,,", "a score must be a number in [0, 1], got inf"),
        (f"a,0.5,,{'9' * 400},,", "a time must be seconds since the epoch"),
        ("a\x01b,0.5,,,,", "an id must be a string"),
        (f"{'a' * 200_000},0.5,,,,", "not CSV: field larger than field limit"),
    ],
)
def test_a_poison_row_is_a_reject_with_its_reason(row: str, reason: str) -> None:
    refused = CsvDecoder(HEADER).decode(row.encode())
    assert isinstance(refused, Malformed), refused
    assert reason in refused.reason
    assert len(refused.reason) <= 400


def test_depth_is_told_the_same_however_deep_the_caller_is() -> None:
    """A decoder's own limit counts the frames of its callers: a replay would tell events otherwise."""

    def at(depth: int, raw: bytes) -> Event | Malformed:
        return JsonDecoder().decode(raw) if depth == 0 else at(depth - 1, raw)

    for nested in (99, 100, 500, 900):
        raw = b'{"id":"a","score":0.5,"x":' + b"[" * nested + b"]" * nested + b"}"
        assert at(0, raw) == at(300, raw)
        assert isinstance(at(0, raw), Malformed) == (nested > 99)


def test_names_of_unknown_fields_are_bounded() -> None:
    decoder = JsonDecoder()
    for i in range(300):
        name = f"field-{i}-" + "x" * 10_000
        decoder.decode(msgspec.json.encode({"id": "a", "score": 0.5, name: 1}))
    assert decoder.unknown_fields.total() == 300
    assert len(decoder.unknown_fields) <= 101
    assert max(map(len, decoder.unknown_fields)) <= 100

    wide = CsvDecoder(b"id,score," + b",".join(b"c%d" % i for i in range(300)))
    for _ in range(2):
        assert wide.decode(b"a,0.5" + b"," * 300) == PredictionEvent("a", 0.5)
    assert wide.unknown_fields.total() == 600
    assert len(wide.unknown_fields) <= 101


COLUMNS = (
    Columns(),
    Columns(keep=("extra", "x")),
    Columns(id="key", key="id", keep=("extra",)),
    Columns(positive="yes", keep=("label",)),
)


@given(st.integers(0, 2**32), st.sampled_from(COLUMNS))
def test_no_mutated_line_raises(seed: int, columns: Columns) -> None:
    raw = json_line(random.Random(seed))
    for decoder in (
        JsonDecoder("target", columns),
        CsvDecoder(b"id,score,label,time,key,domain,extra", "target", columns),
    ):
        found = decoder.decode(raw)
        assert isinstance(found, Malformed | PredictionEvent | LabelEvent | LabelledEvent)
        assert not isinstance(found, Malformed) or len(found.reason) <= 1000
    block = raw.replace(b"\n", b" ")
    events = JsonDecoder("target", columns).decode_lines(block)
    assert events is None or list(events) == [JsonDecoder("target", columns).decode(block)]

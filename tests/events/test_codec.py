"""Decoding events: what is taken, and what each refusal says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events import Event, codec
from streamcal.events.codec import CsvDecoder, JsonDecoder, Malformed
from streamcal.events.columns import Columns
from streamcal.events.table_codec import RowsDecoder


def decode(raw: str | bytes, decoder: JsonDecoder | CsvDecoder | None = None) -> Event | Malformed:
    text = raw.encode() if isinstance(raw, str) else raw
    return (decoder or JsonDecoder()).decode(text)


def plain(event: Event | Malformed) -> Event:
    assert not isinstance(event, Malformed), event.reason
    return event


@pytest.mark.parametrize(
    ("raw", "event"),
    [
        ('{"id":"a","score":1,"time":9,"key":"k"}', PredictionEvent("a", 1.0, 9.0, "k")),
        ('{"id":"a","score":0.5,"domain":"source"}', PredictionEvent("a", 0.5, domain="source")),
        ('{"id":17,"score":0.5}', PredictionEvent("17", 0.5)),
        ('{"id":"a","label":true,"time":null}', LabelEvent("a", 1)),
        ('{"id":"a","score":0.5,"label":0,"time":1.5}', LabelledEvent(0.5, 0, "a", 1.5)),
        ('{"id":"a","label":1,"time":"1970-01-01T01:01:00+01:00"}', LabelEvent("a", 1, 60.0)),
    ],
)
def test_events_that_are_taken(raw: str, event: Event) -> None:
    assert plain(decode(raw)) == event


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ('{"id":"a","score":NaN}', "NaN and Infinity are not JSON, and a score must be a number in [0, 1]"),
        ('{"id":"a","score":1.00001}', "a score must be a number in [0, 1], got 1.00001"),
        ('{"id":"a","score":1e400}', "Number out of range"),
        ('{"id":"a","score":"0.5"}', "a score must be a number in [0, 1], got '0.5'"),
        ('{"id":"a","label":2}', "a label must equal 0 or 1, got 2"),
        ('{"id":"a","label":"2"}', "a label must equal 0 or 1, got '2'"),
        ('{"score":0.5}', "missing field: a prediction or a label needs an id"),
        ('{"id":"","score":0.5}', "control characters, got ''"),
        ('{"id":"a","score":0.5,"time":"soon"}', "ISO 8601 date and time, got 'soon'"),
        ('{"id":"a","score":0.5,"key":3}', "control characters, got 3"),
        ('{"id":"a","score":0.5', "not JSON: Input data was truncated"),
        ("[1]", "an event must be a JSON object, got [1]"),
        (b'{"id":"\xff","score":0.5}', "invalid UTF-8"),
    ],
)
def test_events_that_are_refused(raw: str | bytes, reason: str) -> None:
    refused = decode(raw)
    assert isinstance(refused, Malformed)
    assert reason in refused.reason


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)
FIELDS = st.fixed_dictionaries({}, optional=dict.fromkeys(("id", "score", "label", "time", "key"), JSON))


@given(FIELDS)
def test_fast_and_slow_decoding_agree(fields: dict[str, object]) -> None:
    """An unknown field forces the slow way; the event must be the same."""
    fast = decode(msgspec.json.encode(fields))
    slow = decode(msgspec.json.encode({**fields, "zzz": 0}))
    if isinstance(fast, Malformed):
        assert isinstance(slow, Malformed)
        assert slow.reason == fast.reason
    else:
        assert plain(fast) == plain(slow)


@pytest.fixture(autouse=True)
def columns_of_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "FEWEST", 1)


def test_blocks_of_predictions_and_of_labels_may_alternate() -> None:
    decoder = JsonDecoder("source")
    predictions = b'{"id":"a","score":0.5,"key":"k"}\n{"id":"b","score":1,"domain":"target","time":2}\n'
    labels = b'{"id":"a","label":1}\n{"id":"b","label":0,"time":3}\n'
    both = b'{"score":0.5,"label":1}\n{"id":"b","score":1,"label":0,"key":"k","domain":"target","time":3}\n'
    wanted = [PredictionEvent("a", 0.5, None, "k", "source"), PredictionEvent("b", 1.0, 2.0)]
    labelled = [LabelledEvent(0.5, 1, domain="source"), LabelledEvent(1.0, 0, "b", 3.0, "k")]
    for block, events in [
        (predictions, wanted),
        (predictions, wanted),
        (labels, [LabelEvent("a", 1), LabelEvent("b", 0, 3.0)]),
        (both, labelled),
        (both, labelled),
        (predictions + labels, [*wanted, LabelEvent("a", 1), LabelEvent("b", 0, 3.0)]),
        (predictions, wanted),
        (b'{"id":"a","score":0.5}\n\n{"id":"b","score":0.5} {"id":"c","score":0.5}\n', None),
        (predictions, wanted),
        (b'{"id":"a","score":1.5}\n', None),
        (b'{"id":"a","score":0.5,"model":"v2"}\n', None),
        (predictions, wanted),
    ]:
        found = decoder.decode_lines(block)
        assert found is None or list(found) == events
        assert events is None or [decoder.decode(line) for line in block.splitlines()] == events


def test_csv_rows() -> None:
    decoder = CsvDecoder(b"id, score,label,time,model")
    assert plain(decode('"a,b",0.25,,,m', decoder)) == PredictionEvent("a,b", 0.25)
    assert plain(decode("a,,1,60,m", decoder)) == LabelEvent("a", 1, 60.0)
    assert plain(decode("a,,TRUE,1970-01-01T00:01:00Z,m", decoder)) == LabelEvent("a", 1, 60.0)
    assert plain(decode(",0.5,0.0,,m", decoder)) == LabelledEvent(0.5, 0)
    assert decoder.unknown_fields.total() == 4


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("a,high,,", "a score must be a number in [0, 1], got 'high'"),
        ("a,0.5", "the header has 4 columns, the row 2"),
        (b"\xff,0.5,,", "invalid UTF-8"),
        ('"a,0.5,,', "not CSV"),
    ],
)
def test_csv_rows_that_are_refused(raw: str | bytes, reason: str) -> None:
    refused = decode(raw, CsvDecoder(b"id,score,label,time"))
    assert isinstance(refused, Malformed)
    assert reason in refused.reason


def test_csv_headers_that_are_refused() -> None:
    with pytest.raises(ValueError, match="a CSV header must name score or label"):
        CsvDecoder(b"id,score,score")


@pytest.mark.parametrize("key", ["\x01", "k" * 600])
def test_what_a_label_does_not_have_is_ignored_in_every_format(key: str) -> None:
    """A label has no key and no domain, and nothing of it is kept: they cannot cost a label."""
    columns = Columns(keep=("note",))
    note = "n" * 5_000
    fields = {"id": "a", "label": 1, "key": key, "note": note}
    fields["domain"] = "moon"
    line = msgspec.json.encode(fields)
    for many in (1, 100):
        lines = JsonDecoder(columns=columns).decode_lines(b"\n".join([line] * many))
        assert lines is None or list(lines) == [LabelEvent("a", 1)] * many
    assert JsonDecoder(columns=columns).decode(line) == LabelEvent("a", 1)
    assert JsonDecoder().decode(line) == LabelEvent("a", 1)  # the note is a field of another name
    if "\n" not in key:
        row = ",".join(str(value) for value in fields.values()).encode()
        assert CsvDecoder(",".join(fields).encode(), columns=columns).decode(row) == LabelEvent("a", 1)
    for many in (1, 100):
        table = RowsDecoder(list(fields), "target", columns)
        values = {role: [fields[role]] * many for role in table.roles}
        assert list(table.decode(values, [[note] * many], many)) == [LabelEvent("a", 1)] * many
    refused = JsonDecoder().decode(msgspec.json.encode(fields | {"score": 0.5}))
    assert isinstance(refused, Malformed)


@pytest.mark.parametrize("domains", [["source", None], ["", "x"]])
def test_rows_of_a_table_keep_their_domain(domains: list[str | None]) -> None:
    rows = [{"id": f"i{n}", "score": 0.5, "domain": domains[n % len(domains)]} for n in range(100)]
    table = RowsDecoder(["id", "score", "domain"], "target", Columns())
    values: Any = {role: [row[role] for row in rows] for role in table.roles}
    one_by_one = [
        table.row({name: value for name, value in row.items() if value is not None}) for row in rows
    ]
    assert list(table.decode(values, (), len(rows))) == one_by_one
    lines = JsonDecoder()
    text = b"\n".join(map(msgspec.json.encode, rows))
    lines.decode_lines(text)  # which kind of events comes
    events = lines.decode_lines(text) or [lines.decode(line) for line in text.split(b"\n")]
    assert [getattr(event, "domain", None) for event in events] == [
        getattr(event, "domain", None) for event in one_by_one
    ]


LINES = st.sampled_from(
    [
        *(b'{"id":"a","score":0.5}', b'{"id":"b","label":1,"key":"k"}', b'{"id":"d",', b'"score":0.5}'),
        *(b'{"id":"c","score":0.5,"label":0,"time":3}\r', b'{"id":"e","score":0.5}{"id":"f","score":0.5}'),
        *(
            b'{"id":"{","score":0.5}',
            b'{"id":7,"score":0.5}',
            b'{"id":"g","score":2}',
            b"",
            b" ",
            b"3",
            b"\xff",
        ),
        b'{"id":"h","score":0.5,"x":{}}',
    ]
)


@given(st.lists(LINES | st.binary(max_size=5), max_size=6), st.booleans())
def test_a_block_of_lines_decodes_as_its_lines_do(lines: list[bytes], ended: bool) -> None:
    block = b"\n".join(lines) + b"\n" * ended
    decoder = JsonDecoder()
    events = decoder.decode_lines(block)
    if events is not None:
        texts = block.removesuffix(b"\n").split(b"\n")
        assert list(events) == [decoder.decode(line) for line in texts]


@pytest.mark.parametrize("columns", [Columns(), Columns(keep=("x",)), Columns(classes=("a", "b", "c"))])
@pytest.mark.parametrize(
    "repeated",
    [
        b'{"id":"p1","id":"p2",S,"time":1}',
        b'{"id":null,"id":"p2",S}',
        b'{"id":"p1",S,"time":1,"time":null}',
        b'{"id":"p1",S,"x":null,"x" :1}',
        b'{"id":"p:1",S,"\\u0069d"\t:"p2"}',
        b'{"id":"p1","time":"2026-01-02T03:04:05Z",S,S}',
        b'{"id":"p1",S,"unknown":1,"unknown":":"}',
        b'{"id":"p1",S,"unknown":[{"a":1,"a":2}]}',
    ],
)
def test_a_field_that_comes_twice_is_refused_on_every_path(columns: Columns, repeated: bytes) -> None:
    """One line, few, and many by columns; what has as many colons and each field once is taken."""
    score = b'"scores":{"a":0.5,"c":0.25,"b":0.25}' if columns.classes else b'"score":0.5'
    line = repeated.replace(b"S", score)
    once = b'{"id":"p::1",%b,"x":null,"time":2}' % score
    for count in (1, 3, 100):
        decoder = JsonDecoder(columns=columns)
        for text in (line, once):
            lines = [once] * (count - 1) + [text]
            found = decoder.decode_lines(b"\n".join(lines), rejects=True) or [*map(decoder.decode, lines)]
            assert [type(event) for event in found[:-1]] == [PredictionEvent] * (count - 1)
            assert getattr(found[-1], "code", None) == ("repeated_field" if text is line else None)

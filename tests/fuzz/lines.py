"""Lines of events: through the decoders, alone and in blocks, and through whole runs with a restart."""

from __future__ import annotations

import math
import random
from typing import Any, Final

import msgspec
import pyarrow
from pydantic import ByteSize
from streamcal_connectors import csv_columns

from streamcal import JoinConfig, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events import codec
from streamcal.events.codec import CsvDecoder, JsonDecoder, Malformed, TextFormat
from streamcal.events.input_checks import MeaningError
from streamcal.run.config import KeysConfig, RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.runner import Inputs, Runner
from tests.fuzz.harness import RefusedError
from tests.fuzz.mutate import change_text
from tests.memory import logs, stores

BLOCK: Final = 8
"""Lines of a block of `try_json`."""

_VALUES: Final = (
    b"0", b"1", b"0.5", b"-0.0", b"1e-400", b"1e400", b"1" + b"0" * 309, b"9" * 5000, b"0." + b"3" * 400,
    b"2", b"-1", b"0.1e1", b"1E0", b"true", b"false", b"null", b"NaN", b"Infinity", b"01", b"1.", b".5",
    b"+1", b"0_1", b'""', b'"a"', b'"0"', b'"1"', b'"yes"', b'"0.5"', b'"nan"', b'"inf"', b'"\\u0000"',
    b'"\\ud800"', b'"\\n"', b'"\xc3\xa9"', b'"\xff"', b'"' + "é".encode() * 300 + b'"',
    b'"' + b"x" * 600 + b'"', b'"source"', b"1700000000", b"1700000000000", b"1e25", b"-1e18",
    b"253402300800", b'"2023-11-14T22:13:25Z"', b'"2023-02-30"', b'"9999-12-31T23:59:59+14:00"',
    b'"0001-01-01T00:00:00+14:00"', b'"' + b"9" * 400 + b'"', b'"1e400"', b'"-"', b'"1_0"',
    "\"١٢٣\"".encode(), b"[]", b"{}", b"[" * 100 + b"]" * 100, b"[" * 20_000 + b"]" * 20_000,
    b'{"a":' * 20_000 + b"1" + b"}" * 20_000, b"18446744073709551616", b"-0",
)  # fmt: skip
_NAMES: Final = (
    *(b"id", b"score", b"label", b"time", b"key", b"domain", b"ID", b"Score", b"extra", b"", b"\\u0069d"),
)
pyarrow.set_memory_pool(
    pyarrow.system_memory_pool()
)  # the default one reserves 1 GiB: too much for the harness
_EVENTS = PredictionEvent | LabelEvent | LabelledEvent


def json_line(rng: random.Random) -> bytes:
    """Return a line that is nearly an event; it may hold line breaks."""
    number = str(rng.randrange(50)).encode()
    fields = {b"id": b'"u' + number + b'"', b"time": number, b"score": b"0." + number, b"label": b"1"}
    for name in rng.sample([*fields], rng.choice((0, 0, 1, 2))):
        del fields[name]
    if rng.random() < 0.3:
        fields[b"key"] = rng.choice((b'"a"', b'"b"', b"null"))
    for _ in range(rng.choice((0, 1, 1, 2))):
        fields[rng.choice(_NAMES)] = rng.choice(_VALUES)
    pairs = [b'"' + name + b'":' + value for name, value in fields.items()]
    if rng.random() < 0.05:
        pairs += pairs[:1]
    line = b"{" + rng.choice((b",", b" , ")).join(pairs) + b"}"
    return change_text(line, rng) if rng.random() < 0.3 else line


def _csv_row(rng: random.Random) -> bytes:
    number = str(rng.randrange(50)).encode()
    cells = [b"u" + number, b"0." + number, b"1", number, b"a", b"target"]
    for _ in range(rng.choice((0, 1, 1, 2))):
        at = rng.randrange(len(cells))
        cells[at] = rng.choice((b"", rng.choice(_VALUES).strip(b'"'), rng.choice(_VALUES)))
    row = b",".join(cells)
    return change_text(row, rng) if rng.random() < 0.3 else row


def try_json(rng: random.Random) -> int:
    """Try a block of lines, and each of its lines alone: what the block gives is what they give."""
    lines = [json_line(rng).replace(b"\n", b" ") for _ in range(BLOCK)]
    if rng.random() < 0.5:  # such as a block that is decoded at once
        lines = [b'{"id":"c%d","score":0.%d,"time":%d}' % (i, i + 1, i) for i in range(BLOCK)]
        lines[rng.randrange(BLOCK)] = json_line(rng).replace(b"\n", b" ")
    alone, whole = JsonDecoder(), JsonDecoder()
    events = [_checked(alone.decode(line)) for line in lines]
    codec.FEWEST = 1
    for _ in range(2):  # the second time, it knows what kinds of events come
        block = whole.decode_lines(b"\n".join(lines) + b"\n" * rng.randrange(2))
        if block is not None:
            assert list(map(_plain, block)) == list(map(_plain, events)), (lines, block, events)
    return _count(events)


def try_csv(rng: random.Random) -> int:
    """Try a few rows under a header, which may be wrong itself."""
    header = b"id,score,label,time,key,domain"
    if rng.random() < 0.1:
        header = change_text(header, rng)
    form = TextFormat(
        None, rng.choice((None, ",", ";")), rng.choice((None, ".", ",")), rng.choice((None, "dmy", "mdy"))
    )
    mark = (form.separator or rng.choice(",;")).encode()
    header = header.replace(b",", mark)
    try:
        decoder = CsvDecoder(header, form=form)
    except ValueError as error:
        raise RefusedError(str(error)) from None
    rows = [_csv_row(rng).replace(b"\n", b" ") for _ in range(BLOCK)]
    if rng.random() < 0.5:  # such as a block that is read as columns
        times = (b"%d", b"2023-11-14T22:13:%02dZ", b"%d.12.2023", b"%d/12/2023 1:00")
        time, key = rng.choice(times), rng.choice((b"", b"a", b" b"))
        rows = [b"c%d, 0.%d,%d,%b,%b," % (i, i + 1, i % 2, time % i, key) for i in range(BLOCK)]
        if rng.random() < 0.5:
            rows[rng.randrange(BLOCK)] = _csv_row(rng).replace(b"\n", b" ")
    if mark != b",":
        rows = [row.replace(b",", mark).replace(b"0.", rng.choice((b"0.", b"0,"))) for row in rows]
    events = [_checked(decoder.decode(row)) for row in rows]
    csv_columns.FEWEST = 1
    columns = csv_columns.CsvColumns(header, form=form)
    columns.notes = {"decimal": ""}  # else the first block is decoded one by one, to note it
    block = columns.decode_lines(b"\n".join(rows) + b"\n")
    assert block is None or list(map(_plain, block)) == list(map(_plain, events)), rows
    return _count(events)


def try_run(rng: random.Random) -> int:
    """Run over lines that are nearly events, end, and run on from the store: as one run over all would."""
    lines = [json_line(rng) for _ in range(120)]
    events = [b'{"id":"v%d","score":0.%d,"time":%d}' % (i, 10 + i % 80, i) for i in range(40)]
    labels = [b'{"id":"v%d","label":%d,"time":%d}' % (i, i % 3 == 0, i + 3) for i in range(40)]
    for good in (*events, *labels):
        lines.insert(rng.randrange(len(lines)), good)
    cut = rng.randrange(len(lines))
    config = {"window": "PT5M"} if rng.random() < 0.3 else {}
    outcome = []
    for name, parts in (("once", [lines]), ("twice", [lines[:cut], lines[cut:]])):
        logs.clear()
        stores.clear()
        for part in parts:
            logs["in"].partitions[""] += part
            answered = _run(config)
        checkpoint = stores["state"].load()
        outcome.append(
            (answered, checkpoint.engines, logs["answers"].partitions[""], logs["rejects"].partitions[""])
        )
        assert answered == len(lines), name
    assert outcome[0][2:] == outcome[1][2:]
    assert outcome[0][1] == outcome[1][1]
    return len(lines)


def _run(config: dict[str, Any]) -> int:
    from streamcal.engine.config import RecalibratorConfig

    connectors = Connectors()
    store = connectors.store("memory:state")
    pipeline = Pipeline(
        RunConfig(
            recalibrator=RecalibratorConfig(**config),
            join=JoinConfig(label_ttl=100.0, max_pending=50),
            keys=KeysConfig(limit=3, memory=ByteSize(1)),
        )
    )
    outputs = Outputs(connectors.sink("memory:answers"), connectors.sink("memory:rejects"))
    inputs = Inputs([], [connectors.source("memory:in")])
    ticks = iter(range(10**9))
    try:
        Runner(pipeline, inputs, outputs, store, clock=lambda: next(ticks) * 0.06).run()
    except MeaningError as error:  # a part may hold labels of one class only, beside bad ones
        raise RefusedError(str(error)) from None
    finally:
        store.close()
    return pipeline.tally.events


def _checked(event: object) -> Any:
    """Return what a decoder gave, if it is what the documentation says."""
    if isinstance(event, Malformed):
        assert event.reason
        assert len(event.reason) < 5000, event.reason[:200]
        return event
    assert isinstance(event, _EVENTS), event
    if not isinstance(event, LabelEvent):
        assert type(event.score) is float
        assert 0.0 <= event.score <= 1.0
        assert event.domain in ("source", "target")
    if not isinstance(event, PredictionEvent):
        assert type(event.label) is int
        assert event.label in (0, 1)
    assert event.time is None or (type(event.time) is float and math.isfinite(event.time)), event.time
    assert event.id is None or 0 < len(event.id.encode()) <= 512
    msgspec.json.encode(event)
    return event


def _plain(event: Any) -> Any:
    return type(event).__name__, msgspec.to_builtins(event)


def _count(events: list[Any]) -> int:
    good = sum(not isinstance(event, Malformed) for event in events)
    if not good:
        raise RefusedError("; ".join(sorted({event.reason.split(",")[0] for event in events})))
    return len(events)

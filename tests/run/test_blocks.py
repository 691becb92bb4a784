"""Columns and events one by one: the same rows, rejects, counts and state, to the byte."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamcal_connectors.encoding import RowEncoder

from streamcal import JoinConfig, LabelEvent, LabelledEvent, PredictionEvent, RecalibratorConfig
from streamcal.events import Event, Origin
from streamcal.events.blocks import Block
from streamcal.events.codec import Malformed
from streamcal.events.columns import Columns
from streamcal.join.join import Join
from streamcal.run import pipeline as pipeline_module
from streamcal.run import runner
from streamcal.run.config import KeysConfig, RunConfig, SegmentsConfig
from streamcal.run.connectors import Connectors
from streamcal.run.order import MicroBatch, TimesRead
from streamcal.run.outcome import Outcome
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SinkOptions, SourceOptions
from streamcal.run.runner import Inputs, Runner
from streamcal.sketch.decoding import encoded
from tests.nightly import one_in

Stream = Sequence[Event | Malformed]


@pytest.fixture(autouse=True)
def one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take many events at a time again behind every one that was taken alone."""
    monkeypatch.setattr(pipeline_module, "_FEW", 0)


class _Batch:
    """Where events come from."""

    def __init__(self, first: int) -> None:
        self._first = first

    def origin(self, index: int) -> Origin:
        return Origin("there", self._first + index, b"%d" % index)


def run(
    events: Stream, cuts: Sequence[int], *, in_columns: bool, keeps_answers: bool = False, **options: Any
) -> tuple[object, ...]:
    """Return all that comes out of a pipeline, and its state."""
    pipeline = Pipeline(RunConfig(**options), keeps_answers=keeps_answers)
    outcomes = []
    ends = [*sorted(cuts), len(events)]
    for start, end in zip([0, *ends], ends, strict=False):
        part: Any = Block.of(events[start:end], "target") if in_columns else events[start:end]
        batch = MicroBatch(part, {}, {}, {}, TimesRead(), [(_Batch(start), 0)], [0], None)
        outcome = pipeline.process(batch)
        rows = RowEncoder("").encode(outcome.answers)
        assert rows == msgspec.json.Encoder().encode_lines(list(outcome.answers))
        versions = [each.with_map() for each in outcome.versions]
        told = versions, outcome.alarms, outcome.doubtful, outcome.delays
        outcomes.append((rows, outcome.rejects, *told))
        assert pipeline.processed == end
    engines = {key: engine.to_bytes() for key, engine in pipeline.engines.items()}
    state = pipeline.tally, pipeline.reasons, encoded(pipeline.quality), pipeline.join.to_bytes()
    state = *state, pipeline.sampler, encoded(pipeline.decisions)  # type: ignore[assignment]
    closed = msgspec.structs.replace(pipeline.close(), answers=None)  # type: ignore[arg-type]
    return outcomes, closed, pipeline.join.counts, *state, engines


def assert_same(events: Stream, cuts: Sequence[int] = (), **options: Any) -> None:
    one_by_one = run(events, cuts, in_columns=False, **options)
    columns = run(events, cuts, in_columns=True, **options)
    for mine, wanted in zip(columns, one_by_one, strict=True):
        assert mine == wanted


IDS = st.sampled_from([f"i{number}" for number in range(12)])
SCORES = st.floats(0.0, 1.0)
KEYS = st.sampled_from([None, None, "k", "l"])
DOMAINS = st.sampled_from(["target", "target", "target", "source"])
WEIGHTS = st.sampled_from([None] * 9 + [1.0, 2.5, 0.25])
STEPS = st.sampled_from([None, 0.0, 0.0, 1.0, 1.0, 2.0, -3.0, 9.0])


@st.composite
def streams(draw: st.DrawFn, *, keys: bool) -> list[Event | Malformed]:
    events: list[Event | Malformed] = []
    now = 0.0
    for _ in range(draw(st.integers(0, 50))):
        step = draw(STEPS)
        now += step or 0.0
        moment = None if step is None else now
        id_ = draw(IDS)
        key, domain = draw(KEYS) if keys else None, draw(DOMAINS) if keys else "target"
        kind = draw(st.sampled_from("pppplllbam"))
        if kind == "p":
            event = PredictionEvent(id_, draw(SCORES), moment, key, domain, weight=draw(WEIGHTS))
            events.append(event)
        elif kind == "l":
            events.append(LabelEvent(id_, draw(st.integers(0, 1)), moment, weight=draw(WEIGHTS)))
        elif kind == "m":
            events.append(Malformed("malformed", {"error": "bad"}))
        else:
            label = draw(st.integers(0, 1))
            named = id_ if kind == "b" else None
            events.append(LabelledEvent(draw(SCORES), label, named, moment, key, domain))
    return events


@pytest.mark.slow
@given(
    streams(keys=False) | streams(keys=True),
    st.lists(st.integers(0, 20), max_size=2),
    st.sampled_from([3, 5, 100]),
    st.sampled_from([2.0, 5.0, 1000.0]),
    st.sampled_from(["composite", "auto", "target"]),
    st.booleans(),
)
def test_any_stream(
    events: list[Event | Malformed],
    cuts: list[int],
    most: int,
    ttl: float,
    mode: Any,
    keeps_answers: bool,
) -> None:
    options: dict[str, Any] = {
        "join": JoinConfig(max_pending=most, label_ttl=ttl),
        "recalibrator": RecalibratorConfig(mode=mode),
        "keys": KeysConfig(limit=2),
    }
    cuts = [min(cut, len(events)) for cut in cuts]
    assert_same(events, cuts, keeps_answers=keeps_answers, **options)


def delayed(count: int, seed: int = 1, *, odd: float = 0.01) -> list[Event | Malformed]:
    """Predictions, most labelled later; now and then an event of another kind."""
    rng = random.Random(seed)
    timed: list[tuple[float, Event | Malformed]] = []
    for number in range(count):
        score, id_, now = rng.random() ** 2, f"r{number}", float(number)
        key = rng.choice(["k", "l"]) if seed % 2 else None
        timed.append((now, PredictionEvent(id_, score, now, key)))
        label = int(rng.random() < score**1.5)
        if rng.random() < 0.7:
            moment = now + rng.expovariate(0.02)
            timed.append((moment, LabelEvent(id_, label, moment)))
        if rng.random() < odd:
            early = now - 5.0
            strange: list[Event | Malformed] = [
                LabelEvent(id_, 1 - label, early),
                PredictionEvent(id_, score, now),
                LabelledEvent(score, label, None, now, None, "source"),
                Malformed("malformed", {"error": "bad"}),
                LabelledEvent(score, label, id_ + "b", None),
            ]
            timed.append((now, rng.choice(strange)))
    return [event for _, event in sorted(timed, key=lambda each: each[0])]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"mode": "composite"},
    {"mode": "composite", "window": 300},
    {"prior": "scores"},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", one_in(2, [1, 2]))
def test_labels_that_begin_versions(options: dict[str, Any], seed: int) -> None:
    join = JoinConfig(max_pending=400, label_ttl=300.0)
    events = delayed(600, seed)
    source = [LabelledEvent((i % 97) / 97, int(i % 3 == 0), domain="source") for i in range(200)]
    assert_same([*source, *events], [300, 500], join=join, recalibrator=RecalibratorConfig(**options))


ADDED: list[dict[str, Any]] = [
    {"sampling": {"share": 0.4}, "intervals": {"probability": 0.9}},
    {"sampling": {"labels_per_day": 40_000.0}, "decision": {"capacity_per_day": 20}},
    {"intervals": {"probability": 0.8}, "decision": {"false_positive": 1.0, "false_negative": 4.0}},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", ADDED, ids=str)
@pytest.mark.parametrize("mode", ["composite", "auto"])
def test_what_is_added_to_rows(options: dict[str, Any], mode: Any) -> None:
    for keeps_answers in (False, True):
        for seed in (1, 2):
            config = RecalibratorConfig(mode=mode)
            join = JoinConfig(max_pending=400, label_ttl=300.0)
            events = delayed(600, seed)
            assert_same(
                events, [300, 500], keeps_answers=keeps_answers, join=join, recalibrator=config, **options
            )


def with_segments(events: Stream) -> list[Event | Malformed]:
    """Return events with the values of two fields, some of them missing."""
    made: list[Event | Malformed] = []
    for number, event in enumerate(events):
        if isinstance(event, PredictionEvent | LabelledEvent) and number % 7:
            event = msgspec.structs.replace(event, kept=(f"s{number % 11}", number % 3 or None))
        made.append(event)
    return made


SEGMENTED: dict[str, Any] = {
    "segments": SegmentsConfig(fields=("shop", "device"), own_engines=3),
    "columns": Columns().with_segments(("shop", "device")),
}


@pytest.mark.slow
@given(
    streams(keys=False) | streams(keys=True),
    st.lists(st.integers(0, 20), max_size=2),
    st.sampled_from([3, 5, 100]),
    st.sampled_from(["auto", "target"]),
)
def test_any_stream_with_segments(
    events: list[Event | Malformed], cuts: list[int], most: int, mode: Any
) -> None:
    join, config = JoinConfig(max_pending=most, label_ttl=5.0), RecalibratorConfig(mode=mode)
    cuts = [min(cut, len(events)) for cut in cuts]
    unweighted = [
        each if isinstance(each, Malformed) else msgspec.structs.replace(each, weight=None) for each in events
    ]
    assert_same(with_segments(unweighted), cuts, join=join, recalibrator=config, **SEGMENTED)


def test_files_with_a_store(tmp_path: Path) -> None:
    found = []
    for in_columns in (False, True):
        folder = tmp_path / "run"
        folder.mkdir()
        found.append(run_files(folder, delayed(600, 2, odd=0.02), in_columns=in_columns))
        rmtree(folder)
    assert found[0] == found[1]


def test_weighted_labels_beside_columns_of_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store gives the predictions of labels that no column holds, too."""
    monkeypatch.setattr(runner, "MAX_EVENTS", 200)
    found = []
    for weight in (None, 2.0):
        folder = tmp_path / "run"
        folder.mkdir()
        rejects = run_files(folder, delayed(600, 2), in_columns=True, weight=weight)[1]
        found.append(str(rejects).count("reason"))
        rmtree(folder)
    assert found[0] == found[1]


class OneByOne(Pipeline):
    """A pipeline that takes no events as columns."""

    def process(self, batch: MicroBatch) -> Outcome:
        batch.events = list(batch.events)
        return super().process(batch)


def run_files(folder: Path, events: Stream, *, in_columns: bool, weight: float | None = None) -> list[object]:
    """Run over files, and return their rows and all that is in the store."""
    lines: dict[str, list[str]] = {"events": [], "labels": []}
    more = "" if weight is None else f',"w":{weight}'
    for event in events:
        if isinstance(event, LabelEvent):
            lines["labels"].append(f'{{"id":"{event.id}","label":{event.label},"time":{event.time}{more}}}')
        elif isinstance(event, PredictionEvent):
            lines["events"].append(f'{{"id":"{event.id}","score":{event.score},"time":{event.time}}}')
    connectors = Connectors()
    for name, each in lines.items():
        (folder / f"{name}.jsonl").write_text("\n".join(each) + "\n")
    options = SourceOptions(columns=Columns(weight="w" if weight else None))
    sources = [connectors.source(str(folder / f"{name}.jsonl"), options) for name in lines]
    outputs = Outputs(
        *(connectors.sink(str(folder / f"{kind}.jsonl"), SinkOptions(rows=kind)) for kind in KINDS)
    )
    store = connectors.store(str(folder / "run.db"))
    kind = Pipeline if in_columns else OneByOne
    pipeline = kind(RunConfig(join=JoinConfig(max_pending=150, label_ttl=250.0)))
    assert Runner(pipeline, Inputs([], sources), outputs, store, clock=time.monotonic).run()
    for sink in outputs.sinks:
        sink.close()
    store.close()
    rows: list[object] = [(folder / f"{kind}.jsonl").read_bytes() for kind in KINDS]
    with sqlite3.connect(folder / "run.db") as db:
        tables = ("packs", "marks", "engines", "versions", "rejects")
        rows += [db.execute(f"SELECT * FROM {table}").fetchall() for table in tables]
    db.close()
    return rows


KINDS = ("answers", "rejects", "maps")


def test_label_times_that_go_back() -> None:
    """The engine remembers the latest, wherever among many it is."""
    predictions = [PredictionEvent(f"i{n}", n / 40, float(n)) for n in range(40)]
    labels = [LabelEvent(f"i{n}", n % 2, 100.0 - n if n < 39 else None) for n in range(40)]
    assert_same([*predictions, *labels], recalibrator=RecalibratorConfig(mode="source"))


def test_the_numbers_of_many_keys_stand_for_them_all_at_once() -> None:
    """Keys without a prediction in the join are forgotten, though never some of one block alone."""
    join = Join(JoinConfig())
    for first in (0, 5000, 2500):
        codes = join.codes_of(f"k{key}" for key in range(first, first + 5000))
        assert [join.names[code] for code in codes.values()] == list(codes)
    assert len(join.names) < 10_000

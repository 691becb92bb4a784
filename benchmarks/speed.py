"""How many events a second? Calls, files, Kafka and HTTP, beside what a user would build.

    python -m benchmarks.speed [--parts calls files kafka shards http methods] [--predictions 1000000]
    python -m benchmarks.speed --parts files --cases "auto, store"

Every figure is processor time of one process and one thread, but for HTTP, which goes by the clock. Calls and
their yardsticks take turns, repeat by repeat, on the same arrays; figures are medians, with the least and the
greatest. Below 10⁶ events, one timing goes through calls on scores not seen before: on the same 1,000 scores
over and over, the processor learns the path of a binary search by heart, and the search looks many times as
fast as it is on a stream. Files: polars does what it can of the same, in a process of its own right behind
ours. Kafka: a bare kafka-python loop polls, decodes and produces; it keeps no state, joins nothing, and has
no transactions. Shards: several processes of the command line on 12 partitions, beside one; what a process
takes to start, and on a short stream, is left out. Both parts need Java 17, as the tests do. HTTP: 32
connections of wrk beside the server on the same machine, and every event is in the store before its answer;
it needs wrk (``apt install wrk``). Methods: see `benchmarks.end_to_end`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

# ruff: noqa: E402  # numpy reads these when it is imported
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import msgspec
import numpy as np

from benchmarks.measuring import options, publish, seconds, spread
from streamcal import JoinConfig, LabelEvent, PredictionEvent, Recalibrator, RecalibratorConfig
from streamcal.events.codec import JsonDecoder
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from streamcal.testing import NormalPair

Work = Callable[[], object]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), help="of files")
    parser.add_argument("--predictions", type=int, default=1_000_000, help="of files; Kafka gets a fifth")
    parser.add_argument("--repeats", type=int, default=5, help="of calls; Kafka gets half of them")
    parser.add_argument("--seconds", type=int, default=10, help="that wrk loads the server")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.run:  # a process of its own
        folder, case, work = asked.run
        events, taken = (run_polars if work == "polars" else run)(Path(folder), CASES[case])
        print(json.dumps([events, taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
        return
    if asked.quick:
        asked.parts, asked.cases = ["calls", "files"], ["auto", "auto, store"]
        asked.predictions, asked.repeats = 100_000, 1
    for part in asked.parts:
        header, rows = PARTS[part](asked)
        publish(part, header, rows, write=asked.write)


Table = tuple[tuple[str, ...], Iterator[Sequence[str]]]


# Calls


def sample(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and labels of the paper's D(0.5), float64[n] and int8[n], in random order."""
    scores, labels = NormalPair(0.5).sample(n, np.random.default_rng(seed))
    order = np.random.default_rng(seed).permutation(n)
    return scores[order], labels[order].astype(np.int8)


def in_calls(call: Callable[[slice], object], size: int, events: int) -> Work:
    """Return work that makes calls of so many events, on scores not seen before."""

    def work() -> None:
        for start in range(0, events, size):
            call(slice(start, start + size))

    return work


def calls(asked: Any) -> Table:
    """Return a row for each kind of call."""

    def rows() -> Iterator[Sequence[str]]:
        n = 20_000 if asked.quick else 200_000
        scores, labels = sample(n)
        for what, ours, yardstick, theirs, events in pairs(scores, labels):
            taken = seconds(ours, *([theirs] if theirs else []), repeats=asked.repeats)
            each = [[1e9 * one / events for one in some] for some in taken]
            row = [what, spread(each[0])]
            if theirs:
                row += [yardstick, spread(each[1])]
            yield row + [""] * (4 - len(row))

    return ("call", "ns an event", "beside", "ns an event"), rows()


def pairs(scores: np.ndarray, labels: np.ndarray) -> Iterator[tuple[str, Work, str, Work | None, int]]:
    """Yield what is called, ours, the yardstick, and for how many events."""
    from sklearn.isotonic import IsotonicRegression

    n = len(scores)
    few = min(n, 10**5)
    engine = Recalibrator()
    engine.learn_many(scores, labels, "source")
    fitted = IsotonicRegression(out_of_bounds="clip").fit(scores, labels)
    steps, heights = fitted.X_thresholds_, fitted.y_thresholds_
    for size in (1_000, 100_000):
        yield (
            f"learn_many of {size:,}, mode auto",
            in_calls(lambda part: engine.learn_many(scores[part], labels[part]), size, n),
            "", None, n,
        )  # fmt: skip
        yield (
            f"predict_many of {size:,}, mode auto",
            in_calls(lambda part: engine.predict_many(scores[part]), size, n),
            "numpy.interp on an isotonic fit",
            in_calls(lambda part: np.interp(scores[part], steps, heights), size, n),
            n,
        )  # fmt: skip
    yield (
        f"a new engine learns {n:,}",
        lambda: Recalibrator().learn_many(scores, labels, "source"),
        "IsotonicRegression.fit",
        lambda: IsotonicRegression(out_of_bounds="clip").fit(scores, labels),
        n,
    )
    both = list(zip(scores[:few].tolist(), labels[:few].tolist(), strict=True))
    ends, values, learned = steps.tolist(), heights.tolist(), list[tuple[float, int]]()
    yield (
        "learn_one, mode auto",
        lambda: [engine.learn_one(score, label) for score, label in both],
        "list.append",
        lambda: [learned.append(each) for each in both],
        few,
    )
    yield (
        "predict_one, mode auto",
        lambda: [engine.predict_one(score) for score, _ in both],
        "bisect on lists",
        lambda: [values[bisect_right(ends, score) - 1] for score, _ in both],
        few,
    )
    lines = [
        msgspec.json.encode({"id": str(place), "score": score, "time": place + 0.5})
        for place, (score, _) in enumerate(both)
    ]
    decode, plain = JsonDecoder().decode, msgspec.json.decode
    yield (
        "decode a line of JSON", lambda: [decode(line) for line in lines],
        "msgspec to a dict", lambda: [plain(line) for line in lines], few,
    )  # fmt: skip
    yield "step: a prediction, and its label 1,000 later, mode auto", stream(engine, both), "", None, few


def stream(engine: Recalibrator, both: list[tuple[float, int]], delay: int = 1_000) -> Work:
    """Return work that sends predictions and labels through the join."""
    predictions = [PredictionEvent(str(place), score, float(place)) for place, (score, _) in enumerate(both)]
    labels = [LabelEvent(str(place), label, place + 0.5) for place, (_, label) in enumerate(both)]
    state = engine.to_bytes()

    def work() -> None:
        step = Recalibrator.from_bytes(state).step
        for prediction in predictions[:delay]:
            step(prediction)
        for prediction, label in zip(predictions[delay:], labels, strict=False):
            step(prediction)
            step(label)

    return work


# Files


class Case(NamedTuple):
    """What is run."""

    mode: str
    labelled: float
    """Which share of the predictions gets a label."""
    stores: bool = False
    form: str = "jsonl"


CASES = {
    "composite, no labels": Case("composite", 0.0),
    "composite, no labels, Parquet": Case("composite", 0.0, form="parquet"),
    "composite": Case("composite", 0.2),
    "composite, Parquet": Case("composite", 0.2, form="parquet"),
    "auto": Case("auto", 0.2),
    "composite, store": Case("composite", 0.2, stores=True),
    "source, store": Case("source", 0.2, stores=True),
    "auto, store": Case("auto", 0.2, stores=True),
}
SOURCE = 20_000
DELAY = 20_000  # predictions from a prediction to its label, on average
BLOCK = 100_000
POLARS = 10_000_000  # predictions that it can hold, with all that comes of them
START = 1_700_000_000

Columns = dict[str, Any]


def make_source() -> Columns:
    """Return labelled events for calibration."""
    rng = np.random.default_rng(1)
    scores = np.round(rng.random(SOURCE) ** 2, 6)
    return {"score": scores, "label": (rng.random(SOURCE) < scores**1.5).astype(int)}


def make_events(predictions: int, labelled: float) -> Iterator[tuple[Columns, Columns]]:
    """Yield predictions and labels in the order of time, a block at a time."""
    rng = np.random.default_rng(2)
    late: list[tuple[int, str, int]] = []
    for start in range(0, predictions, BLOCK):
        count = min(BLOCK, predictions - start)
        numbers = np.arange(start, start + count)
        scores = np.round(rng.random(count) ** 3, 6)
        salts = rng.integers(0, 1 << 32, count)
        ids = [f"r{number:08d}-{salt:08x}" for number, salt in zip(numbers, salts.tolist(), strict=True)]
        chosen = np.flatnonzero(rng.random(count) < labelled)
        due = (numbers[chosen] + 1 + rng.exponential(DELAY, len(chosen))).astype(int).tolist()
        labels = (rng.random(len(chosen)) < scores[chosen]).astype(int).tolist()
        late += zip(due, [ids[index] for index in chosen], labels, strict=True)
        late.sort()
        end = next((index for index, (at, *_) in enumerate(late) if at >= start + count), len(late))
        now, late = late[:end], late[end:]
        yield (
            {"id": ids, "score": scores, "time": START + numbers},
            {"id": [id_ for _, id_, _ in now], "label": [label for *_, label in now]}
            | {"time": np.array([START + at for at, *_ in now], int)},
        )


def write_jsonl(path: Path) -> Callable[[Columns], None]:
    """Return what appends rows to JSON lines."""

    def write(columns: Columns) -> None:
        form = "{" + ",".join(f'"{name}":' + ('"%s"' if name == "id" else "%s") for name in columns) + "}\n"
        lists = [each if isinstance(each, list) else each.tolist() for each in columns.values()]
        with path.open("a") as file:
            file.writelines(form % row for row in zip(*lists, strict=True))

    return write


def write_parquet(path: Path) -> Callable[[Columns], None]:
    """Return what appends rows to Parquet; the file is whole once this is let go."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    writers: list[Any] = []

    def write(columns: Columns) -> None:
        table = pa.table(columns)
        if not writers:
            writers.append(pq.ParquetWriter(path, table.schema))
        writers[0].write_table(table)

    return write


def write_events(folder: Path, predictions: int, case: Case) -> None:
    """Write a source of calibration, predictions, and labels of some of them, in the order of time."""
    writer = write_parquet if case.form == "parquet" else write_jsonl
    writer(folder / f"source.{case.form}")(make_source())
    events, labels = (writer(folder / f"{name}.{case.form}") for name in ("events", "labels"))
    for some, also in make_events(predictions, case.labelled):
        events(some)
        if case.labelled:
            labels(also)


def run(folder: Path, case: Case) -> tuple[int, float]:
    """Run once; return the events behind the first micro-batch, and their seconds of processor time."""
    connectors, form = Connectors(), case.form
    store = connectors.store(str(folder / "run.db")) if case.stores else None
    source = connectors.source(str(folder / f"source.{form}"), SourceOptions(domain="source"))
    names = ["events", "labels"] if case.labelled else ["events"]
    sources = [connectors.source(str(folder / f"{name}.{form}")) for name in names]
    outputs = Outputs(connectors.sink(str(folder / f"out.{form}")))
    pipeline = Pipeline(
        RunConfig(recalibrator=RecalibratorConfig(mode=case.mode)), publishes_maps=case.stores
    )
    begun: list[float] = []

    def after(_: Outcome, __: float) -> None:
        if not begun and pipeline.join.counts.predictions:  # the first micro-batch of the deployment
            begun.extend((time.process_time(), pipeline.tally.events))

    Runner(pipeline, Inputs([source], sources), outputs, store, clock=time.monotonic, after=after).run()
    for sink in outputs.sinks:
        sink.close()
    taken = time.process_time() - begun[0]
    if store:
        store.close()
    return pipeline.tally.events - int(begun[1]), taken


def run_polars(folder: Path, case: Case) -> tuple[int, float]:
    """Let polars read, join, apply a map of a hundred bins, and write; return events and seconds."""
    import polars as pl

    parquet = case.form == "parquet"
    read: Any = pl.read_parquet if parquet else pl.read_ndjson
    values, edges = np.linspace(0.0, 1.0, 101), np.arange(1, 101) / 101
    begun = time.process_time()
    events = read(folder / f"events.{case.form}")
    count = len(events)
    if case.labelled:
        labels = read(folder / f"labels.{case.form}")
        count += len(labels)
        events = events.join(labels, on="id", how="left")
    answers = events.select(
        "id",
        "score",
        pl.Series("probability", values[np.searchsorted(edges, events["score"].to_numpy())]),
        map_version=pl.lit(1),
        weights=pl.lit([1.0, 1.0]),
        key=pl.lit(None, pl.String),
        time=pl.col("time").cast(pl.Float64),
    )
    if parquet:
        answers.write_parquet(folder / "polars.parquet", compression="snappy")
    else:
        answers.write_ndjson(folder / "polars.jsonl")
    return count, time.process_time() - begun


class Taken(NamedTuple):
    """What a case took."""

    events: int
    seconds: float
    """Of processor time."""
    peak: float
    """The most memory, in MiB."""


def in_a_process(folder: Path, name: str, *, by_polars: bool = False) -> Taken:
    """Run a case over the events of a folder, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        __spec__.name,
        "--run",
        str(folder),
        name,
        "polars" if by_polars else "us",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return Taken(*json.loads(done.stdout))


def files(asked: Any) -> Table:
    """Return a row for each case."""

    def rows() -> Iterator[Sequence[str]]:
        for name in asked.cases:
            with tempfile.TemporaryDirectory() as folder:
                write_events(Path(folder), asked.predictions, CASES[name])
                ours = in_a_process(Path(folder), name)
                rate = ours.events / ours.seconds
                row = [name, f"{ours.events:,}", f"{rate:,.0f}", f"{ours.peak:,.0f}"]
                if not CASES[name].stores and asked.predictions <= POLARS:
                    theirs = in_a_process(Path(folder), name, by_polars=True)
                    other = theirs.events / theirs.seconds
                    row += [f"{other:,.0f}", f"{rate / other:.2f}"]
            yield row + [""] * (6 - len(row))

    return ("file to file", "events", "events/s", "MiB", "polars, events/s", "of polars"), rows()


# Kafka


CLIENTS: Final = ("kafka-python", "confluent")
WARM_UP: Final = 5_000  # predictions
LABELLED: Final = 0.2  # of the predictions


class Prediction(msgspec.Struct):
    """What the loop reads."""

    id: str
    score: float
    time: float


class Label(msgspec.Struct):
    """What the loop reads, too."""

    id: str
    label: int
    time: float


class Answer(msgspec.Struct):
    """What the loop writes: what `streamcal.engine.emissions.Recalibrated` is."""

    id: str
    score: float
    probability: float
    map_version: int
    weights: tuple[float, float]


def fill(broker: Any, predictions: str, labels: str, count: int, keys: int = 0) -> int:
    """Write the stream, by the key or, without keys, by the id; return how many events it has."""
    from kafka import KafkaProducer

    rng = random.Random(1)  # noqa: S311  # a sample, no secret
    written = 0
    with closing(
        KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20, batch_size=1 << 18)
    ) as sender:
        for i in range(count):
            id_, score = b"%016x" % rng.getrandbits(64), rng.random()
            key = b"k%d" % rng.randrange(keys) if keys else id_
            more = b',"key":"%s"' % key if keys else b""
            sender.send(predictions, b'{"id":"%s","score":%.6f,"time":%d%s}' % (id_, score, i, more), key)
            written += 1
            if rng.random() < LABELLED:
                label = rng.random() < score
                sender.send(labels, b'{"id":"%s","label":%d,"time":%d}' % (id_, label, i + 60), key)
                written += 1
        sender.flush()
    return written


def bare(broker: Any, topics: tuple[str, str], output: str, events: int) -> int:
    """Poll, decode and produce, as plainly as kafka-python allows; return how many were produced."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    decoders = [msgspec.json.Decoder(kind).decode for kind in (Prediction, Label)]
    encode = msgspec.json.Encoder().encode
    read = answered = 0
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        metrics_enabled=False,
        max_partition_fetch_bytes=4 << 20,
    )
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, metrics_enabled=False, linger_ms=20, batch_size=1 << 18
    )
    with closing(consumer), closing(producer):
        places = [TopicPartition(topic, 0) for topic in topics]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        while read < events:
            for place, records in consumer.poll(timeout_ms=200, max_records=32_768).items():
                read += len(records)
                if place.topic == topics[1]:
                    for record in records:
                        decoders[1](record.value)
                    continue
                for record in records:
                    event = decoders[0](record.value)
                    answer = Answer(event.id, event.score, event.score, 1, (1.0, 1.0))
                    producer.send(output, encode(answer), event.id.encode())
                    answered += 1
        producer.flush()
    return answered


def through_kafka(broker: Any, topics: tuple[str, str], outputs: list[str], events: int, store: Path) -> int:
    """Run the pipeline with a store and transactions until all is read; return how many were answered."""
    connectors = Connectors()
    kept = connectors.store(str(store))
    pipeline = Pipeline(RunConfig(join=JoinConfig(label_ttl=1e9, max_pending=10**8)))
    sources = [connectors.source(f"kafka://{broker.bootstrap}/{topic}") for topic in topics]
    sinks = [connectors.sink(f"kafka://{broker.bootstrap}/{topic}") for topic in outputs]
    try:
        Runner(
            pipeline,
            Inputs([], sources),
            Outputs(*sinks),
            kept,
            clock=time.monotonic,
            stop=lambda: pipeline.tally.events >= events,
        ).run()
    finally:
        for each in (*sources, *sinks, kept):
            each.close()
    return pipeline.join.counts.predictions


def timed(work: Callable[[], int], count: int) -> float:
    """Return the processor time of this process, all threads."""
    processor = time.process_time()
    answered = work()
    taken = time.process_time() - processor
    assert answered == count, f"{answered} answers, not {count}"
    return taken


def kafka(asked: Any) -> Table:
    """Return a row for the loop and each client."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    from streamcal_connectors.kafka.cluster import hold_log_back

    from tests.connectors.kafka.broker import Broker
    from tests.connectors.kafka.topics import Kafka

    hold_log_back()

    def rows() -> Iterator[Sequence[str]]:
        with Broker() as broker, tempfile.TemporaryDirectory() as folder:
            new = Kafka(broker).topic

            def mine(client: str) -> int:
                os.environ["STREAMCAL_KAFKA_LIBRARY"] = client
                outputs = [new("answers"), new("rejects"), new("maps")]
                store = Path(tempfile.mkdtemp(dir=folder), "run.db")
                return through_kafka(broker, topics, outputs, events, store)

            works = {"a bare kafka-python loop": lambda: bare(broker, topics, new("bare"), events)}
            works |= {f"streamcal run, {client}": partial(mine, client) for client in CLIENTS}
            times: dict[str, list[float]] = {name: [] for name in works}
            most = asked.predictions // 5
            for count in (WARM_UP, *[most] * max(asked.repeats // 2, 1)):
                if count == WARM_UP or not any(times.values()):
                    topics = new("predictions"), new("labels")
                    events = fill(broker, *topics, count)
                for name, work in works.items():
                    taken = timed(work, count)
                    if count != WARM_UP:
                        times[name].append(1e6 * taken / events)
        for name, each in times.items():
            yield [name, f"{events:,}", spread(each)]

    return ("Kafka to Kafka", "events", "µs of processor an event"), rows()


PARTITIONS: Final = 12
KEYS: Final = 60
COMMAND: Final = (sys.executable, "-c", "from streamcal.cli.app import main; main()", "run", "--quiet")


def in_shards(broker: Any, topics: tuple[str, str], output: str, runs: int) -> tuple[float, float]:
    """Let so many processes read the topics to their end; return seconds of processor and of the clock."""
    urls = [f"kafka://{broker.bootstrap}/{topic}" for topic in (*topics, output)]
    options = [f"--events={urls[0]}?until=end", f"--labels={urls[1]}?until=end", f"--output={urls[2]}"]
    with tempfile.TemporaryDirectory() as folder:
        began, started = time.monotonic(), []
        for shard in range(runs):
            own = [f"--store={folder}/{shard}.db", *([f"--shard={shard}/{runs}"] if runs > 1 else [])]
            command, nowhere = [*COMMAND, *options, *own], subprocess.DEVNULL
            started.append(subprocess.Popen(command, stdout=nowhere, stderr=nowhere))  # noqa: S603
        ended = [os.wait4(each.pid, 0) for each in started]
        assert not any(status for _, status, _ in ended)
        return sum(used.ru_utime + used.ru_stime for *_, used in ended), time.monotonic() - began


def shards(asked: Any) -> Table:
    """Return a row for each client and number of processes."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    from tests.connectors.kafka.broker import Broker
    from tests.connectors.kafka.topics import Kafka

    def rows() -> Iterator[Sequence[str]]:
        with Broker() as broker:
            kafka, found = Kafka(broker), dict[tuple[str, int], list[Any]]()
            streams = []
            for count in (WARM_UP, asked.predictions):
                topics = kafka.topic("predictions", PARTITIONS), kafka.topic("labels", PARTITIONS)
                streams.append((topics, fill(broker, *topics, count, KEYS)))
            (short, few), (long, many) = streams
            for _ in range(max(asked.repeats // 2, 1)):
                for client, runs in ((client, runs) for client in CLIENTS for runs in (1, 2, 3)):
                    os.environ["STREAMCAL_KAFKA_LIBRARY"] = client
                    start, more = (
                        np.array(in_shards(broker, topics, kafka.topic("answers", PARTITIONS), runs))
                        for topics in (short, long)
                    )
                    found.setdefault((client, runs), []).append((more - start) / (many - few))
            for (client, runs), each in found.items():
                processor, clock = np.transpose(each) * 1e6
                rates = [1e6 / wait for wait in clock]
                yield [f"{runs} × {client}", f"{many:,}", spread(list(processor)), f"{max(rates):,.0f}"]

    header = "processes", "events", "µs of processor an event, in all", "events/s, at best"
    return header, rows()


# HTTP


CONNECTIONS: Final = 32
STREAMCAL: Final = [sys.executable, "-c", "from streamcal.cli.app import main; main()"]

# Of every other request, or line, the label follows 20 later.
LOAD = """
local thread = 0
function setup(each) each:set("id", thread); thread = thread + 1 end
function init(args)
  math.randomseed(id + os.time())
  prefix, number, size = string.format("%%d-%%d-", id, math.random(1e9)), 0, %d
end
local function event()
  number = number + 1
  local time = 1.7e9 + number / 100
  return string.format('{"id":"%%s%%d","score":%%.6f,"time":%%d}', prefix, number, math.random(), time)
end
local function label(at)
  return string.format('{"id":"%%s%%d","label":%%d}', prefix, at, math.random() < 0.3 and 1 or 0)
end
local calls = 0
function request()
  calls = calls + 1
  local lines, path = {}, "/v1/predictions"
  if calls %% 2 == 0 and number > 20 * size * %d then
    path = "/v1/labels"
    for i = 1, size do lines[i] = label(number - 20 * size - size + i) end
  else
    for i = 1, size do lines[i] = event() end
  end
  local kind = size == 1 and "application/json" or "application/x-ndjson"
  return wrk.format("POST", path, {["Content-Type"] = kind}, table.concat(lines, "\\n"))
end
"""


def seconds_of(process: int) -> float:
    """Return the processor time that a process took."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve(folder: Path, *more: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server on a new store, with further options; return it and its URL once it takes requests."""
    server = subprocess.Popen(  # noqa: S603
        [*STREAMCAL, "serve", "--store", str(folder / "store.db"), "--port", "0", *more],
        stderr=subprocess.PIPE,
    )
    assert server.stderr is not None
    url = next(re.findall(rb"http://\S+", line)[0].decode() for line in server.stderr if b"http://" in line)
    for _ in range(200):
        try:
            urllib.request.urlopen(f"{url}/readyz")  # noqa: S310
        except OSError:
            time.sleep(0.1)
        else:
            return server, url
    raise TimeoutError("the server does not get ready")


class Served(NamedTuple):
    """What a server did under load."""

    rate: float
    """Requests a second."""
    p50: str
    p99: str
    processor: float
    """Microseconds of its processor time an event."""
    refused: int


def load(size: int, seconds: int) -> Served:
    """Load a server with requests of so many events, predictions and labels in turn."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "load.lua"
        script.write_text(LOAD % (size, CONNECTIONS))
        server, url = serve(Path(folder))
        before = seconds_of(server.pid)
        try:
            done = subprocess.run(  # noqa: S603
                ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(script), url],  # noqa: S607
                check=True,
                capture_output=True,
                text=True,
            )
            taken = seconds_of(server.pid) - before
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
    requests = int(re.findall(r"(\d+) requests in", done.stdout)[0])
    rate = float(re.findall(r"Requests/sec:\s+([\d.]+)", done.stdout)[0])
    p50, p99 = (re.findall(rf"{share}%\s+(\S+)", done.stdout)[0] for share in (50, 99))
    refused = re.findall(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    return Served(rate, p50, p99, taken / requests / size * 1e6, int(refused[0]) if refused else 0)


def http(asked: Any) -> Table:
    """Return a row for each number of events a request."""
    if shutil.which("wrk") is None:
        sys.exit("wrk, which loads the server, is not installed: apt install wrk, or brew install wrk")

    def rows() -> Iterator[Sequence[str]]:
        for size in (1, 100):
            made = load(size, asked.seconds)
            figures = (
                f"{made.rate * size:,.0f}",
                made.p50,
                made.p99,
                f"{made.processor:.1f}",
                str(made.refused),
            )
            yield [str(size), *figures]

    header = ("events a request", "events/s", "median", "p99", "µs of processor an event", "refused")
    return header, rows()


def methods(asked: Any) -> Table:
    """Return a row for each method; what it imports would count as memory of the other parts."""
    from benchmarks.end_to_end import end_to_end

    return end_to_end(asked)


PARTS: Final[dict[str, Callable[[Any], Table]]] = {
    "calls": calls,
    "files": files,
    "kafka": kafka,
    "shards": shards,
    "http": http,
    "methods": methods,
}


if __name__ == "__main__":
    main()

"""The command line over Kafka, killed and restarted: every id once, and the sketches of a run never stopped.

The flights stream goes through ``streamcal run`` with ``--events``, ``--labels``, ``--output``, ``--rejects``
and ``--maps`` on topics. Whatever is killed, and whenever:

* the final sketches of labels and traffic are byte-equal to those of a run that was left alone;
* a ``read_committed`` reader sees every prediction's id exactly once;
* every answer is what the map version that it states, read from the maps topic, gives with its weights.

CI kills a few times on a part of the stream. ``STREAMCAL_CRASH=full`` takes all of it and kills 50 times;
``STREAMCAL_CRASH_KILLS`` says how often instead.
"""

from __future__ import annotations

import gzip
import math
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaProducer  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from streamcal_connectors.kafka.positions import offset_of

from streamcal import RecalibrationMap
from streamcal.engine.engine import Engine
from streamcal.join.outcomes import JoinCounts
from streamcal.maps.shift import shift_correction_one
from streamcal.run.connectors import Connectors
from streamcal.run.stored import pipeline_state
from tests.command_line import FLIGHTS
from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.clients import RUN_PATIENCE, ends, reader, rows_of, until
from tests.connectors.kafka.fixtures import AnyBroker, Topics, retried
from tests.connectors.kafka.runs import Runs, runs

FULL = os.environ.get("STREAMCAL_CRASH") == "full"
KILLS = int(os.environ.get("STREAMCAL_CRASH_KILLS", "50" if FULL else "10"))
BROKER_KILLS = int(os.environ.get("STREAMCAL_CRASH_KILLS", "50" if FULL else "3"))
PREDICTIONS = 10**9 if FULL else 8_000
MAX_EVENTS = 4000 if FULL else 400
"""Of a micro-batch: small ones give many moments to be killed at."""

DAY = 86_400.0
TTL = 7 * DAY
"""Above what labels take, a day, and what is sent at a time, which comes in any order: five days."""

Row = tuple[str, bytes, bytes]
"""Topic, key, value."""


# Processes


# Topics


def flights(count: int = PREDICTIONS) -> tuple[list[bytes], list[bytes]]:
    with gzip.open(FLIGHTS / "predictions.jsonl.gz") as lines:
        predictions = [line.strip() for line in islice(lines, count)]
    last = msgspec.json.decode(predictions[-1])["time"]
    with gzip.open(FLIGHTS / "labels.jsonl.gz") as lines:
        labels = [line.strip() for line in lines if msgspec.json.decode(line)["time"] <= last]
    return predictions, labels


def id_of(line: bytes) -> bytes:
    found: str = msgspec.json.decode(line)["id"]
    return found.encode()


def interleave(rng: random.Random, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Return both in a random way, each in its order."""
    which = [0] * len(first) + [1] * len(second)
    rng.shuffle(which)
    each = iter(first), iter(second)
    return [next(each[one]) for one in which]


@contextmanager
def sending(broker: AnyBroker) -> Iterator[Callable[[Sequence[Row]], None]]:
    """Give what sends rows, once each (idempotently), whatever happens to the broker meanwhile."""
    with closing(
        KafkaProducer(
            bootstrap_servers=broker.bootstrap, linger_ms=20, batch_size=1 << 18, metrics_enabled=False
        )
    ) as sender:

        def send(rows: Sequence[Row]) -> None:
            sent = [sender.send(topic, value=value, key=key) for topic, key, value in rows]
            sender.flush(RUN_PATIENCE)
            assert all(future.succeeded() for future in sent)

        yield send


def send(broker: AnyBroker, rows: Sequence[Row]) -> None:
    with sending(broker) as send_rows:
        send_rows(rows)


# Scenario


class Stream:
    """Topics of one test, and the command line that runs over them."""

    def __init__(
        self,
        broker: AnyBroker,
        new_topic: Topics,
        folder: Path,
        partitions: int = 2,
        join: str = f"label_ttl = {TTL}",
    ) -> None:
        self.broker = broker
        self.folder = folder
        self.new_topic = new_topic
        self.inputs = {
            "--events": new_topic("predictions", partitions),
            "--labels": new_topic("labels", partitions),
        }
        (folder / "config.toml").write_text(f"[join]\n{join}\n")
        self.source = folder / "source.jsonl"
        with gzip.open(FLIGHTS / "source.jsonl.gz") as lines:
            self.source.write_bytes(b"".join(islice(lines, None if FULL else 4000)))

    def arguments(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Return the command line of a run with outputs of its own, and their topics."""
        outputs = {
            "--output": self.new_topic("answers", 2),
            "--rejects": self.new_topic("rejects"),
            "--maps": self.new_topic("maps"),
        }
        options = [
            f"{option}=kafka://{self.broker.bootstrap}/{topic}"
            for option, topic in (self.inputs | outputs).items()
        ]
        options += [f"--calibration={self.source}", f"--config={self.folder / 'config.toml'}"]
        return ["run", *options, f"--store={self.folder / name}.db"], outputs

    def done(self, name: str) -> bool:
        """Whether a run's store has all that is on the topics."""
        at = self.positions(name)
        if not at:
            return False
        try:
            with reader(self.broker) as consumer:
                last = ends(consumer, list(self.inputs.values()))
        except KafkaError:  # the broker has just started
            return False
        return all(
            offset_of(at.get((f"kafka:{p.topic}", str(p.partition)), 0)) >= end for p, end in last.items()
        )

    def positions(self, name: str) -> dict[tuple[str, str], Any]:
        """Return how far the topics were read, by source and partition, as of the last commit of a store."""
        store = self.folder / f"{name}.db"
        if not store.exists():
            return {}
        try:
            with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
                (text,) = db.execute("SELECT value FROM meta WHERE name = 'positions'").fetchone()
        except sqlite3.OperationalError:
            return {}
        return {
            (source, partition): place
            for source, places in msgspec.json.decode(text).items()
            for partition, place in places.items()
            if source.startswith("kafka:")
        }

    def sketches(self, name: str) -> dict[str, bytes]:
        """Return the sketches of the engine in a store, those that do not depend on the order of events.

        After an alarm, mode ``auto`` makes a new source of the target's labels that come next: which those
        are does depend on it. So do labels held or found by exclusion, which the target's may lack or add.
        """
        with self.store(name) as store:
            engine = Engine.from_bytes(store.load().engines[None])
        alarmed = any(alarm.assumption.startswith("label shift") for alarm in engine.alarms)
        sketches = {"traffic": engine._unlabelled.sketch}
        delays = engine.label_delays
        if delays is None or (delays.late is None and not delays.held and not delays.excluded):
            sketches["target"] = engine._target.log.sketch
        if not alarmed:
            sketches["source"] = engine._source.log.sketch
        return {which: sketch.to_bytes() for which, sketch in sketches.items()}

    def counts(self, name: str) -> JoinCounts:
        with self.store(name) as store:
            state = pipeline_state(store.load())
        assert state is not None
        return state.join.counts

    def store(self, name: str) -> Any:
        return closing(Connectors().store(str(self.folder / f"{name}.db"), read_only=True))

    def run_to_the_end(self, name: str, max_events: int = MAX_EVENTS) -> dict[str, str]:
        """Run until all is read, undisturbed; return the topics of the outputs."""
        arguments, outputs = self.arguments(name)
        with runs(arguments, self.folder / f"{name}.log", max_events) as process:
            process.start()
            self.finish(process, name)
        return outputs

    def await_done(self, process: Runs, name: str) -> None:
        until(lambda: self.done(name), f"{name}: not done; {process.log.read_text()[-3000:]}")

    def finish(self, process: Runs, name: str) -> None:
        self.await_done(process, name)
        assert process.end(signal.SIGTERM) == 0, process.log.read_text()[-3000:]
        assert "Traceback" not in process.log.read_text(), process.log.read_text()[-3000:]


def check(stream: Stream, outputs: dict[str, str], ids: Sequence[bytes]) -> int:
    """Check that every id was answered once, as the stated map says; return how many maps were stated."""
    maps = {0: RecalibrationMap(version=0)}
    for record in rows_of(stream.broker, outputs["--maps"]):
        row = msgspec.json.decode(record.value)
        assert row["version"] not in maps, f"map version {row['version']} was published twice"
        maps[row["version"]] = RecalibrationMap.model_validate(row["map"])
    answers = rows_of(stream.broker, outputs["--output"])
    assert sorted(record.key for record in answers) == sorted(ids)
    for record in answers:
        row = msgspec.json.decode(record.value)
        base = maps[row["map_version"]].base_one(row["score"])
        assert row["probability"] == shift_correction_one(base, tuple(row["weights"])), row
    return len({msgspec.json.decode(record.value)["map_version"] for record in answers})


@pytest.mark.crash
@pytest.mark.parametrize("what", ["process", "broker", "both"] if FULL else ["both"])
def test_killed_and_yet_every_id_once(
    killable_broker: Broker, new_topic: Topics, tmp_path: Path, what: str
) -> None:
    """Kill the run, the broker, or both in turn; feed the stream in between, a part for every kill."""
    retried(
        killable_broker,
        tmp_path,
        lambda folder, seed: kill_and_check(killable_broker, new_topic, folder, what, seed),
    )


def kill_and_check(killable_broker: Broker, new_topic: Topics, tmp_path: Path, what: str, seed: int) -> None:
    rng = random.Random(f"{what} {seed}")
    kills = KILLS if what == "process" else BROKER_KILLS
    stream = Stream(killable_broker, new_topic, tmp_path)
    predictions, labels = flights()
    rows = interleave(
        rng,
        [(stream.inputs["--events"], id_of(line), line) for line in predictions],
        [(stream.inputs["--labels"], id_of(line), line) for line in labels],
    )
    part = -(-len(rows) // (kills + 1))
    arguments, outputs = stream.arguments("broken")
    struck = 0
    with runs(arguments, tmp_path / "broken.log", MAX_EVENTS) as process:
        for kill in range(kills):
            send(killable_broker, rows[kill * part : (kill + 1) * part])
            if not process.pid:
                process.start()
            time.sleep(rng.uniform(0.0, 1.2 if what == "process" else 0.8))
            if what != "process":
                killable_broker.kill()
                time.sleep(rng.uniform(0.0, 0.3))
            if what != "broker":
                struck += process.end(signal.SIGKILL) == -signal.SIGKILL
                if what == "both" and rng.random() < 0.5:
                    process.start()  # and it waits for the broker
            if what != "process":
                killable_broker.start()
        send(killable_broker, rows[kills * part :])
        if not process.pid:
            process.start()
        stream.finish(process, "broken")
    others = stream.run_to_the_end("whole", 65_536)
    ids = [id_of(line) for line in predictions]
    assert check(stream, outputs, ids) > 3
    assert check(stream, others, ids) > 1
    joined = len(labels)
    for counts in (stream.counts("broken"), stream.counts("whole")):
        assert (counts.joined, counts.late, counts.unmatched) == (joined, 0, 0)
    broken, whole = stream.sketches("broken"), stream.sketches("whole")
    assert all(broken[which] == whole[which] for which in broken.keys() & whole.keys())
    log = (tmp_path / "broken.log").read_text()
    print(
        f"\n{what}: killed {kills} times ({struck} runs); {len(ids):,} ids, {joined:,} joined;"
        f" away {log.count('is away')}, back {log.count('is back')}, in doubt {log.count('in doubt')}"
    )
    assert "Connection failed" not in log  # kafka-python says that at every attempt
    assert struck == (0 if what == "broker" else kills)
    if what == "broker":
        assert log.count("is away") == log.count("is back") <= kills


class Delayed:
    """The flights with labels as late as they may be, doubled, or never sent."""

    TTL = DAY / 2
    COUNT = 3000 if FULL else 1000

    def __init__(self) -> None:
        choice = random.Random(3)
        predictions, labels = flights()
        self.predictions = [msgspec.json.decode(line) for line in predictions[: self.COUNT]]
        ids = {row["id"] for row in self.predictions}
        outcomes = {row["id"]: row["label"] for row in map(msgspec.json.decode, labels) if row["id"] in ids}
        self.labels = {id_: label for id_, label in outcomes.items() if choice.random() >= 0.01}
        self.doubled = {id_ for id_ in self.labels if choice.random() < 0.1}

    def rows(self, rng: random.Random, inputs: dict[str, str], latest: float) -> list[tuple[float, Row]]:
        """Return both topics' rows by event time, labels delayed by up to ``latest`` in one way of many."""
        rows = []
        for row in self.predictions:
            id_, time_ = row["id"], row["time"]
            rows.append((time_, (inputs["--events"], id_.encode(), msgspec.json.encode(row))))
            if id_ not in self.labels:
                continue
            for _ in range(1 + (id_ in self.doubled)):
                time_ += latest * rng.choice([rng.random(), rng.random(), 1.0])
                label = {"id": id_, "label": self.labels[id_], "time": time_}
                rows.append((time_, (inputs["--labels"], id_.encode(), msgspec.json.encode(label))))
        return sorted(rows, key=lambda each: each[0])


def split(rows: Sequence[tuple[float, Row]], cuts: Sequence[float], rng: random.Random) -> list[list[Row]]:
    """Cut rows at event times; interleave what is between two cuts, each topic in its order."""
    topics = {row[0] for _, row in rows}
    parts = []
    for start, stop in pairwise([-math.inf, *cuts, math.inf]):
        part = [row for time_, row in rows if start <= time_ < stop]
        parts.append(interleave(rng, *([row for row in part if row[0] == topic] for topic in sorted(topics))))
    return [part for part in parts if part]


def test_however_the_topics_are_interleaved(
    kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path
) -> None:
    """Check 3: labels late, doubled, or never; the topics interleaved, cut up and read in different ways.

    Every other way, the run is down while the topics are filled, and catches up: labels come as late as
    ``label_ttl`` allows. Otherwise it reads as they are filled, an hour of event time at a time, and that
    hour is what the labels are earlier.
    """
    ways, hour = (20 if FULL else 2), 3600.0
    stream_rows = Delayed()
    sent, ttl = len(stream_rows.labels), stream_rows.TTL
    seen: list[tuple[dict[str, bytes], JoinCounts]] = []
    for way in range(ways):
        rng = random.Random(way)
        folder = tmp_path / str(way)
        folder.mkdir()
        stream = Stream(kafka_broker, new_topic, folder, partitions=1 + way % 3, join=f"label_ttl = {ttl}")
        live = way % 2 == 1
        rows = stream_rows.rows(rng, stream.inputs, ttl - hour if live else ttl)
        first, last = rows[0][0], rows[-1][0]
        cuts = [rng.uniform(first, last) for _ in range(3)]
        if live:
            cuts = [first + i * hour for i in range(1, int((last - first) / hour))]
        arguments, outputs = stream.arguments("run")
        with (
            sending(kafka_broker) as send_rows,
            runs(arguments, folder / "log", rng.choice([50, 200, 1000, 65_536])) as process,
        ):
            for part in split(rows, sorted(cuts), rng):
                if process.pid and not live:
                    stream.finish(process, "run")
                send_rows(part)
                if not process.pid:
                    process.start()
            # What the first of these shows is the watermark of the second: by then all else has expired.
            for number in (1, 2):
                stream.await_done(process, "run")
                row = {"id": f"end {number}", "score": 0.5, "time": last + number * 10 * ttl}
                send_rows([(stream.inputs["--events"], b"end", msgspec.json.encode(row))])
            stream.finish(process, "run")
        ids = [row["id"].encode() for row in stream_rows.predictions]
        check(stream, outputs, [*ids, b"end 1", b"end 2"])
        counts = stream.counts("run")
        assert (counts.joined, counts.late, counts.unmatched) == (sent, 0, 0), way
        assert (counts.duplicate, counts.expired) == (len(stream_rows.doubled), stream_rows.COUNT - sent), way
        counts.early = 0  # how many labels were read before their prediction is what differs
        seen.append((stream.sketches("run"), counts))
    assert all(each == seen[0] for each in seen)

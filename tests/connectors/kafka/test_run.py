"""The command line over Kafka, killed and restarted: every id once, and the sketches of a run never stopped.

The flights stream goes through ``streamcal run`` with ``--events``, ``--labels``, ``--output``, ``--rejects``
and ``--maps`` on topics. Whatever is killed, and whenever:

* the final sketches of labels and traffic are byte-equal to those of a run that was left alone;
* a ``read_committed`` reader sees every prediction's id exactly once;
* every answer is what the map version that it states, read from the maps topic, gives with its weights.
"""

from __future__ import annotations

import gzip
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka.errors import KafkaError
from streamcal_connectors.kafka.positions import offset_of

from streamcal import RecalibrationMap
from streamcal.engine.engine import Engine
from streamcal.maps.shift import shift_correction_one
from streamcal.run.connectors import Connectors
from streamcal.run.stored import stored_run
from tests.command_line import FLIGHTS
from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.topics import BOTH, Kafka, ends, prediction, retried, started, until
from tests.forks import Fork

PREDICTIONS = 4_000
SMALL, LARGE = "400", "65536"
"""Events of a micro-batch: small ones give many moments to be killed at."""

Row = tuple[str, bytes]
"""Topic and value."""


def flights() -> tuple[list[bytes], list[bytes]]:
    with gzip.open(FLIGHTS / "predictions.jsonl.gz") as lines:
        predictions = [line.strip() for line in islice(lines, PREDICTIONS)]
    last = msgspec.json.decode(predictions[-1])["time"]
    with gzip.open(FLIGHTS / "labels.jsonl.gz") as lines:
        labels = [line.strip() for line in lines if msgspec.json.decode(line)["time"] <= last]
    return predictions, labels


class Stream:
    """Topics of one test, and the command line that runs over them."""

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self.kafka = kafka
        self.folder = folder
        self.inputs = {f"--{name}": kafka.topic(name, 2) for name in ("events", "labels")}
        (folder / "config.toml").write_text(f"[join]\nlabel_ttl = {7 * 86_400}\n")
        with gzip.open(FLIGHTS / "source.jsonl.gz") as lines:
            (folder / "source.jsonl").write_bytes(b"".join(islice(lines, 4000)))

    def arguments(self, name: str) -> tuple[list[str], dict[str, str]]:
        """Return the command line of a run with outputs of its own, and their topics."""
        outputs = {f"--{kind}": self.kafka.topic(kind) for kind in ("rejects", "maps")}
        outputs["--output"] = self.kafka.topic("answers", 2)
        options = [f"{option}={self.kafka.url(topic)}" for option, topic in (self.inputs | outputs).items()]
        files = {"calibration": "source.jsonl", "config": "config.toml", "store": f"{name}.db"}
        options += [f"--{option}={self.folder / file}" for option, file in files.items()]
        return ["run", *options], outputs

    def send(self, rows: Sequence[Row]) -> None:
        """Send rows, once each (idempotently), whatever happens to the broker meanwhile."""
        with self.kafka.producer(linger_ms=20, batch_size=1 << 18) as sender:
            sent = [sender.send(topic, value=value, key=value.split(b'"', 4)[3]) for topic, value in rows]
            sender.flush(180)
            assert all(future.succeeded() for future in sent)

    def ends(self) -> dict[Any, int] | None:
        """Return where the topics of the inputs end; None while the broker does not say."""
        with suppress(KafkaError), self.kafka.reader() as consumer:
            return ends(consumer, list(self.inputs.values()))
        return None

    def finish(self, process: Fork, said: Callable[[], str], name: str) -> None:
        """Wait until the store has all that is on the topics, as of its last commit; end the run."""
        found: list[dict[Any, int]] = []
        until(lambda: found.extend(filter(None, [self.ends()])) or found, "the broker stays away")

        def done() -> bool:
            with (
                suppress(sqlite3.OperationalError),  # of a store that has just begun
                closing(sqlite3.connect(f"file:{self.folder / name}.db?mode=ro", uri=True)) as db,
            ):
                (text,) = db.execute("SELECT value FROM meta WHERE name = 'positions'").fetchone()
                at = msgspec.json.decode(text)
                places = found[0].items()
                return all(
                    offset_of(at.get(f"kafka:{p.topic}", {}).get(str(p.partition), 0)) >= end
                    for p, end in places
                )
            return False

        until(lambda: process.poll() is not None or done(), f"{name}: not done")
        process.terminate()
        assert process.wait(60) == 0, said()
        assert "Traceback" not in said()

    def learned(self, name: str) -> tuple[dict[str, bytes], Any]:
        """Return the sketches of the engine in a store that do not depend on the order of events; the counts.

        After an alarm, mode ``auto`` makes a new source of the target's labels that come next: which those
        are does depend on it. So do labels held or found by exclusion, which the target's may lack or add.
        """
        with closing(Connectors().store(str(self.folder / f"{name}.db"), read_only=True)) as store:
            engine, state = Engine.from_bytes(store.load().engines[None]), stored_run(store.load())
        sketches = {"traffic": engine._unlabelled.sketch}
        delays = engine.label_delays
        if delays is None or (delays.late is None and not delays.held and not delays.excluded):
            sketches["target"] = engine._target.log.sketch
        if not any(alarm.assumption.startswith("label shift") for alarm in engine.alarms):
            sketches["source"] = engine._source.log.sketch
        return {which: sketch.to_bytes() for which, sketch in sketches.items()}, state.pipeline.join.counts


def check(kafka: Kafka, outputs: Mapping[str, str], ids: Sequence[bytes]) -> int:
    """Check that every id was answered once, as the stated map says; return how many maps were stated."""
    published = kafka.values(outputs["--maps"])
    maps = {row["version"]: RecalibrationMap.model_validate(row["map"]) for row in published}
    assert len(maps) == len(published), "a map version was published twice"
    maps[0] = RecalibrationMap(version=0)
    answers = kafka.rows(outputs["--output"])
    assert sorted(record.key for record in answers) == sorted(ids)
    rows = [msgspec.json.decode(record.value) for record in answers]
    for row in rows:
        base = maps[row["map_version"]].base_one(row["score"])
        assert row["probability"] == shift_correction_one(base, tuple(row["weights"])), row
    return len({row["map_version"] for row in rows})


@pytest.mark.crash
@pytest.mark.parametrize(
    ("what", "kills"),
    [
        ("both", 2),
        pytest.param("process", 10, marks=pytest.mark.nightly),
        pytest.param("broker", 10, marks=pytest.mark.nightly),
    ],
)
def test_killed_and_yet_every_id_once(
    killable_broker: Broker, kafka: Kafka, tmp_path: Path, what: str, kills: int
) -> None:
    """Kill the run, the broker, or both in turn; feed the stream in between, a part for every kill."""

    def check_once(folder: Path, seed: int) -> None:
        kill_and_check(Stream(kafka, folder), what, kills, seed)

    retried(killable_broker, tmp_path, check_once)


def kill_and_check(stream: Stream, what: str, kills: int, seed: int) -> None:
    rng, broker = random.Random(f"{what} {seed}"), stream.kafka.broker
    predictions, labels = flights()
    streams = [iter((topic, line) for line in lines) for topic, lines in zip(
        stream.inputs.values(), (predictions, labels), strict=True)]  # fmt: skip
    turns = [0] * len(predictions) + [1] * len(labels)
    rng.shuffle(turns)
    rows = [next(streams[turn]) for turn in turns]  # each topic in its order
    part = -(-len(rows) // (kills + 1))
    arguments, outputs = stream.arguments("broken")
    log, said = "", str
    with ExitStack() as runs:
        process: Fork | None = None

        def start() -> None:
            nonlocal process, said
            process, said = runs.enter_context(started(*arguments, STREAMCAL_TEST_MAX_EVENTS=SMALL))

        for kill in range(kills):
            stream.send(rows[kill * part : (kill + 1) * part])
            if process is None:
                start()
            time.sleep(rng.uniform(0.0, 1.2 if what == "process" else 0.8))
            if what != "process":
                broker.kill()
                time.sleep(rng.uniform(0.0, 0.3))
            if what != "broker":
                process.kill()
                assert process.wait(60) == -signal.SIGKILL
                log, process = log + said(), None
                if what == "both" and rng.random() < 0.5:
                    start()  # and it waits for the broker
            if what != "process":
                broker.start()
        stream.send(rows[kills * part :])
        if process is None:
            start()
        stream.finish(process, said, "broken")
        log += said()
    whole, others = stream.arguments("whole")
    with started(*whole, STREAMCAL_TEST_MAX_EVENTS=LARGE) as (process, said):
        stream.finish(process, said, "whole")
    ids = [msgspec.json.decode(line)["id"].encode() for line in predictions]
    assert check(stream.kafka, outputs, ids) > 3
    assert check(stream.kafka, others, ids) > 1
    (broken, counts), (sketches, other_counts) = stream.learned("broken"), stream.learned("whole")
    for each in (counts, other_counts):
        assert (each.joined, each.late, each.unmatched) == (len(labels), 0, 0)
    assert all(broken[which] == sketches[which] for which in broken.keys() & sketches.keys())
    assert "Connection failed" not in log  # kafka-python says that at every attempt
    if what == "broker":
        assert log.count("is away") == log.count("is back") <= kills


@pytest.mark.crash
@BOTH
@pytest.mark.parametrize(
    ("replicas", "seed"),
    [(3, 0), *(pytest.param(n, seed, marks=pytest.mark.nightly) for n in (2, 3, 5) for seed in range(1, 4))],
)
@pytest.mark.usefixtures("quick_cluster")
def test_of_replicas_with_stores_of_their_own_one_writes(
    kafka: Kafka, tmp_path: Path, replicas: int, seed: int
) -> None:
    """Started together, killed now and then, and restarted ever later, by a supervisor, until refused."""
    rng, rows = random.Random(f"{replicas} {seed}"), 600
    events, output = kafka.topic("events"), kafka.topic("answers")
    kafka.put(events, [prediction(number) for number in range(rows)])
    refused, restarts, due = set[int](), [0] * replicas, dict[int, float]()
    with ExitStack() as runs:

        def start(replica: int) -> tuple[Fork, Callable[[], str]]:
            store = tmp_path / f"{replica}.db"
            command = ["run", "--events", kafka.url(events), "--output", kafka.url(output), "--store", store]
            return runs.enter_context(started(*command, STREAMCAL_TEST_MAX_EVENTS="50"))

        alive = {replica: start(replica) for replica in range(replicas)}

        def only_one_is_left() -> bool:
            for replica, (process, said) in [*alive.items()]:
                if process.poll() is None:
                    continue
                now, wait = time.monotonic(), 0.1 * 2 ** restarts[replica]
                if any(text in said() for text in ("rows of another store", "this store knows nothing of")):
                    refused.add(replica)
                    del alive[replica]
                elif now > due.setdefault(replica, now + wait):
                    del due[replica]
                    restarts[replica] += 1
                    alive[replica] = start(replica)
            return len(alive) == 1

        for _ in range(replicas):
            time.sleep(rng.uniform(0.0, 1.0))
            rng.choice([*alive.values()])[0].kill()
            only_one_is_left()
        until(only_one_is_left, "none was refused")
        until(lambda: only_one_is_left() and len(kafka.answered(output)) >= rows, "not all rows are written")
        assert len(refused) == replicas - 1
    assert sorted(kafka.answered(output)) == list(range(rows))

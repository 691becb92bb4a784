"""Shards: runs that divide the partitions of topics, and write to one output."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamcal.run.ports import Shard
from streamcal.testing import NormalPair
from tests.connectors.kafka.topics import BOTH, Kafka, answer, commit, prediction, started, streamcal, until
from tests.forks import Fork

pytestmark = pytest.mark.usefixtures("quick_cluster")

PARTITIONS, KEYS = 12, 20
INPUTS = "calibration", "events", "labels"


def fill(kafka: Kafka, events: int) -> list[str]:
    """Write a stream of many keys, all by the key, that alone says in which partition; return the options."""
    rng = np.random.default_rng(5)
    topics = {name: kafka.topic(name, PARTITIONS) for name in INPUTS}
    encode = msgspec.json.encode
    with kafka.producer(linger_ms=20, batch_size=1 << 18) as sender:
        for name, law, n in (("calibration", 0.5, events // 4), ("events", 0.2, events)):
            scores, labels = NormalPair(law).sample(n, rng)
            keys = rng.integers(KEYS, size=n).tolist()
            for i, (score, label, key) in enumerate(zip(scores.tolist(), labels.tolist(), keys, strict=True)):
                row = {"id": str(i), "score": score, "time": i, "key": f"k{key}"}
                outcome = {"label": label} if name == "calibration" else {}
                sender.send(topics[name], encode(row | outcome), key=b"k%d" % key)
                if not outcome:
                    late = {"id": str(i), "label": label, "time": i + 40}
                    sender.send(topics["labels"], encode(late), key=b"k%d" % key)
        sender.flush(60)
    return [f"--{name}={kafka.url(topic, '?until=end')}" for name, topic in topics.items()]


def rows(kafka: Kafka, outputs: dict[str, str]) -> dict[str, list[Any]]:
    """Return the rows; of maps not their time, that of the end of a micro-batch."""
    found = {name: kafka.values(topic) for name, topic in outputs.items()}
    found["maps"] = [row | {"time": None} for row in found["maps"]]
    return {name: sorted(some, key=str) for name, some in found.items()}


@pytest.mark.crash
@BOTH
@pytest.mark.parametrize(
    ("runs", "events"),
    [(3, 1_200), *(pytest.param(runs, 20_000, marks=pytest.mark.nightly) for runs in (1, 2, 3))],
)
def test_shards_that_are_killed_equal_one_process(
    kafka: Kafka, tmp_path: Path, runs: int, events: int
) -> None:
    inputs, rng = fill(kafka, events), random.Random(runs)
    (tmp_path / "config.toml").write_text("[keys]\ncertified = 0\n")
    inputs.append(f"--config={tmp_path}/config.toml")
    found = []
    for several in (False, True):
        outputs = {
            "output": kafka.topic("answers", 3),
            "rejects": kafka.topic("rejects"),
            "maps": kafka.topic("maps"),
        }
        command = ["run", *inputs, *(f"--{name}={kafka.url(topic)}" for name, topic in outputs.items())]
        if not several:
            streamcal(*command, "--store", tmp_path / "one.db", status=0)
        else:
            with ExitStack() as stack:
                supervise(stack, command, tmp_path, runs, rng, events)
        found.append(rows(kafka, outputs))
    one, shards = found
    assert len(one["output"]) == events
    assert len(one["maps"]) > 2 * KEYS
    assert one == shards


def supervise(
    stack: ExitStack, command: list[str], folder: Path, runs: int, rng: random.Random, events: int
) -> None:
    """Start every shard, kill each at a random moment and start it again, until all have ended."""

    def start(shard: int) -> tuple[Fork, Callable[[], str]]:
        own = [f"--store={folder}/{shard}.db", f"--shard={shard}/{runs}"]
        return stack.enter_context(started(*command, *own, STREAMCAL_TEST_MAX_EVENTS=str(events // 20)))

    alive = [start(shard) for shard in range(runs)]
    for shard in rng.sample(range(runs), runs):
        time.sleep(rng.uniform(0.0, events / 10_000))
        process, said = alive[shard]
        process.kill()
        assert process.wait(60) == -signal.SIGKILL, said()
        alive[shard] = start(shard)
    for process, said in alive:
        assert process.wait(300) == 0, said()
        assert "Traceback" not in said()


@pytest.mark.crash
@pytest.mark.nightly
@BOTH
def test_shards_that_wait_for_more_and_are_killed_answer_every_id_once(kafka: Kafka, tmp_path: Path) -> None:
    events, rng, output = 10_000, random.Random(7), kafka.topic("answers", 3)
    inputs = [option.replace("?until=end", "") for option in fill(kafka, events)]
    with ExitStack() as stack:

        def start(shard: int) -> Fork:
            own = [f"--output={kafka.url(output)}", f"--store={tmp_path}/{shard}.db", f"--shard={shard}/3"]
            command = ["run", *inputs, *own]
            return stack.enter_context(started(*command, STREAMCAL_TEST_MAX_EVENTS="200"))[0]

        alive = [start(shard) for shard in range(3)]
        for shard in [*range(3)] * 3:
            time.sleep(rng.uniform(0.0, 1.5))
            alive[shard].kill()
            alive[shard].wait(60)
            alive[shard] = start(shard)
        until(lambda: len(kafka.answered(output)) >= events, "not all are answered")
    assert kafka.answered(output) == [*range(events)]


@BOTH
def test_who_may_write_to_one_output(kafka: Kafka) -> None:
    """Shards of one number, one store each; and no run of all partitions, unless it wrote before."""
    topic, whole = kafka.topic("answers"), kafka.topic("answers")
    first, second = Shard(0, 2), Shard(1, 2)
    with kafka.written(topic, "a", shard=first) as one:
        commit(one, 1, answer(1))
        with kafka.written(topic, "b", shard=second) as other:
            commit(other, 1, answer(2))
        commit(one, 2, answer(3))
    for job, shard, append, said in (
        ("b", first, False, r"rows of another store \(a\)"),
        ("c", None, True, "runs with --shard I/2 .* with no --shard"),
        ("c", Shard(0, 3), True, "runs with --shard I/2 .* with --shard I/3"),
    ):
        with pytest.raises(ValueError, match=said), kafka.written(topic, job, append=append, shard=shard):
            pass
    with kafka.written(topic, "a", {"transaction": 2}, shard=first) as one:
        commit(one, 3, answer(4))
    assert kafka.answered(topic) == [1, 2, 3, 4]
    with kafka.written(whole, "w") as all_partitions:
        commit(all_partitions, 1, answer(1))
        with (
            pytest.raises(ValueError, match=r"runs with no --shard .* with --shard I/2.*--append"),
            kafka.written(whole, "a", shard=first),
        ):
            pass
        commit(all_partitions, 2, answer(2))
        with (
            kafka.written(whole, "a", append=True, shard=first),
            kafka.written(whole, "b", shard=second),
            pytest.raises(OSError, match="another run writes"),
        ):
            commit(all_partitions, 3, answer(3))
    assert kafka.answered(whole) == [1, 2]


def test_what_a_shard_refuses_and_remarks(kafka: Kafka, tmp_path: Path) -> None:
    """Topics that do not fit, a file, another shard's store; and that labels are in other partitions."""
    events, labels, two = kafka.topic("events", 3), kafka.topic("labels", 3), kafka.topic("labels", 2)
    for place in range(3):
        numbers = range(place, 30, 3)
        kafka.put(events, [prediction(number) for number in numbers], place)
        late = [b'{"id":"%d","label":0,"time":%d}' % (number, number) for number in numbers]
        kafka.put(labels, late, (place + 1) % 3)
    file = tmp_path / "labels.jsonl"
    file.write_bytes(b'{"id":"1","label":0}\n')

    def run(shard: str, labels: object, store: str = "new.db", status: int = 2) -> str:
        command = ["run", "--events", kafka.url(events, "?until=end"), "--labels", labels]
        command += ["--output", tmp_path / f"{store}.jsonl", "--store", tmp_path / store]
        done = streamcal(*command, STREAMCAL_SHARD=shard, status=status)
        return done.stdout + done.stderr

    url = kafka.url(labels, "?until=end")
    assert "must be I/N" in run("3/3", url)
    assert f"kafka:{events} has 3 partitions" in run("0/4", url)
    assert f"kafka:{events} has 3, kafka:{two} has 2 partitions" in run("0/2", kafka.url(two))
    assert f"{file} has no partitions" in run("0/3", file)
    said = run("1/3", url, "one.db", 0)
    assert "None of the 10 labels" in said
    assert "As this is shard 1/3" in said
    for other, mine in (("2/3", "--shard 2/3"), ("", "no --shard")):
        said = run(other, url, "one.db", 3)
        assert f"the store is of a run with --shard 1/3, and this run has {mine}" in said
    kafka.recreate(events, 3)
    assert "it was deleted and created again" in run("1/3", url, "one.db", 1)

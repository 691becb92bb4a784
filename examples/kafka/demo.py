"""The flights demo over Kafka: make the topics, send the stream, run streamcal on it, show what came out.

    python examples/kafka/demo.py [--bootstrap 127.0.0.1:9092] [--predictions 30000] [--kills 0]

With ``--kills N`` the stream comes in N + 1 parts, and the run is killed (SIGKILL) at some moment of each but
the last, and goes on where it was: the count of answers is the same. Topics are named ``flights-…`` and made
anew every time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore", category=DeprecationWarning)

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402

from streamcal.base.errors import StoreError  # noqa: E402
from streamcal.run.connectors import Connectors  # noqa: E402
from streamcal.run.stored import stored_run  # noqa: E402

FLIGHTS = Path(__file__).parents[1] / "flights"
TOPICS = {
    "events": {"num_partitions": 2},
    "labels": {"num_partitions": 2},
    "output": {"num_partitions": 2},
    "rejects": {"num_partitions": 1},
    "maps": {"num_partitions": 1, "configs": {"cleanup.policy": "compact"}},
}


def make_topics(bootstrap: str, run: str) -> dict[str, str]:
    names = {role: f"flights-{role}-{run}" for role in TOPICS}
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        wanted = {names[role]: {"replication_factor": 1, **each} for role, each in TOPICS.items()}
        admin.create_topics(wanted, wait_for_metadata=True)
    return names


def first(count: int) -> list[tuple[str, bytes]]:
    """Return the first predictions and the labels that have come by then, in order, each with its role."""
    with gzip.open(FLIGHTS / "predictions.jsonl.gz") as lines:
        predictions = [line.strip() for line in islice(lines, count)]
    last = json.loads(predictions[-1])["time"]
    with gzip.open(FLIGHTS / "labels.jsonl.gz") as lines:
        labels = [line.strip() for line in lines if json.loads(line)["time"] <= last]
    rows = [("events", line) for line in predictions] + [("labels", line) for line in labels]
    rows.sort(key=lambda row: json.loads(row[1])["time"])
    return rows


def send(bootstrap: str, topics: dict[str, str], rows: list[tuple[str, bytes]]) -> None:
    with closing(KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, batch_size=1 << 18)) as producer:
        for role, line in rows:
            producer.send(topics[role], line, json.loads(line)["id"].encode())
        producer.flush()
    print(f"sent {len(rows):,} predictions and labels")


def records(bootstrap: str, topic: str) -> list[Any]:
    """Return what a read_committed reader sees."""
    found: list[Any] = []
    with closing(
        KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            isolation_level="read_committed",
            max_poll_records=10_000,
        )
    ) as consumer:
        places = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            for some in consumer.poll(timeout_ms=500).values():
                found += some
    return found


def taken(store: Path) -> tuple[int, int]:
    """Return how many predictions the store has answered, and how many labels have come to it."""
    try:
        with closing(Connectors().store(str(store), read_only=True)) as opened:
            state = stored_run(opened.load())
    except StoreError:  # not there yet
        return 0, 0
    counts = None if state is None else state.pipeline.join.counts
    return (0, 0) if counts is None else (counts.predictions, counts.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--predictions", type=int, default=30_000)
    parser.add_argument("--kills", type=int, default=0)
    options = parser.parse_args()
    topics = make_topics(options.bootstrap, time.strftime("%H%M%S"))
    rows = first(options.predictions)
    sent = sum(role == "events" for role, _ in rows), sum(role == "labels" for role, _ in rows)
    parts = [rows[len(rows) * part // (options.kills + 1) :] for part in range(options.kills + 1)]
    rng = random.Random(1)  # noqa: S311  # no secret
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "streamcal.db"
        config = Path(folder) / "config.toml"
        # A flight is over within a day; one topic may be read weeks ahead of the other.
        config.write_text("[join]\nlabel_ttl = 86400\n")
        command = [
            *(sys.executable, "-c", "from streamcal.cli.app import main; main()", "run"),
            *("--calibration", str(FLIGHTS / "source.jsonl.gz"), "--config", str(config)),
            *(part for role, topic in topics.items()
              for part in (f"--{role}", f"kafka://{options.bootstrap}/{topic}")),
            *("--store", str(store)),
        ]  # fmt: skip
        print(" ".join(command[3:]))
        for kill in range(options.kills):
            send(options.bootstrap, topics, parts[kill][: len(parts[kill]) - len(parts[kill + 1])])
            process = subprocess.Popen(command)  # noqa: S603  # made here
            time.sleep(rng.uniform(2.0, 8.0))
            process.kill()
            process.wait()
            print(f"killed ({kill + 1} of {options.kills}), {taken(store)[0]:,} answered so far")
        send(options.bootstrap, topics, parts[-1])
        with subprocess.Popen(command) as process:  # noqa: S603  # made here
            try:
                while taken(store) != sent and process.poll() is None:
                    time.sleep(0.5)
            finally:
                process.send_signal(signal.SIGTERM)
        if process.returncode:
            sys.exit("streamcal failed")
    ids = [record.key for record in records(options.bootstrap, topics["output"])]
    maps = records(options.bootstrap, topics["maps"])
    newest = json.loads(maps[-1].value)
    print(f"{len(ids):,} answers, {len(set(ids)):,} ids; the newest map is version {newest['version']}")
    if sorted(ids) != sorted(set(ids)) or len(ids) != sent[0]:
        sys.exit("not every id came out exactly once")


if __name__ == "__main__":
    main()

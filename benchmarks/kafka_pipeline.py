"""Kafka to Kafka: `streamcal run` against a bare kafka-python loop, in the same run on the same broker.

The yardstick polls both topics, decodes every record with msgspec, and produces as many records of the same
sizes with the same keys; it keeps no state, joins nothing, and has no transactions. streamcal goes through
each of its clients; all take turns. Each goes on a topic of its own. Ratios are of the processor time of this
process, all threads: the broker, and whatever else runs, shares the machine.

    python benchmarks/kafka_pipeline.py [--events 200000] [--repeats 3] [--clients confluent] [--profile]

Needs Java 17, as the tests do: the broker is theirs (tests/connectors/kafka/broker.py).
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from measure import Row

sys.path.insert(0, str(Path(__file__).parents[1]))
warnings.filterwarnings("ignore", category=DeprecationWarning)

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402
from streamcal_connectors.kafka.cluster import hold_log_back  # noqa: E402

from streamcal import JoinConfig  # noqa: E402
from streamcal.run.connectors import Connectors  # noqa: E402
from streamcal.run.pipeline import Pipeline  # noqa: E402
from streamcal.run.runner import Inputs, Outputs, Runner  # noqa: E402
from tests.connectors.kafka.broker import Broker  # noqa: E402
from tests.connectors.kafka.fixtures import Topics  # noqa: E402

BUDGETS = {"kafka-python": 1.3, "confluent": 3.0}  # times as fast as the loop, at least
WARM_UP = 5_000  # predictions
LABELLED = 0.2  # of the predictions


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


def fill(broker: Broker, predictions: str, labels: str, count: int) -> int:
    """Write the stream; return how many events it has."""
    rng = random.Random(1)  # noqa: S311  # a sample, no secret
    written = 0
    with closing(
        KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20, batch_size=1 << 18)
    ) as sender:
        for i in range(count):
            key, score = b"%016x" % rng.getrandbits(64), rng.random()
            sender.send(predictions, b'{"id":"%s","score":%.6f,"time":%d}' % (key, score, i), key)
            written += 1
            if rng.random() < LABELLED:
                label = rng.random() < score
                sender.send(labels, b'{"id":"%s","label":%d,"time":%d}' % (key, label, i + 60), key)
                written += 1
        sender.flush()
    return written


def bare(broker: Broker, topics: tuple[str, str], output: str, events: int) -> int:
    """Poll, decode and produce, as plainly as kafka-python allows; return how many were produced."""
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


def ours(broker: Broker, topics: tuple[str, str], outputs: list[str], events: int, store: Path) -> int:
    """Run the pipeline with a store and transactions until all is read; return how many were answered."""
    connectors = Connectors()
    kept = connectors.store(str(store))
    pipeline = Pipeline(join=JoinConfig(label_ttl=1e9, max_pending=10**8), tables=kept.tables)
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


def timed(work: Callable[[], int], count: int) -> tuple[float, float]:
    """Return wall time and time of this process of some work."""
    wall, processor = time.perf_counter(), time.process_time()
    answered = work()
    taken = time.perf_counter() - wall, time.process_time() - processor
    assert answered == count, f"{answered} answers, not {count}"
    return taken


def profile(work: Callable[[], int]) -> None:
    profiler = cProfile.Profile()
    profiler.runcall(work)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(10)


def rows() -> Iterator[Row]:
    """Yield how many times as fast as the loop each client is, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "figures.json")
        command = [sys.executable, __file__, "--json", str(out)]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603
        figures = json.loads(out.read_text())
    for client, budget in BUDGETS.items():
        loop, own = ([events[1] for events in figures["seconds"][name]] for name in ("loop", client))
        mine, theirs = ([1e6 * taken / figures["events"] for taken in each] for each in (own, loop))
        yield Row(
            "kafka", f"Kafka to Kafka, {client}", figures["events"], "µs/event", mine,
            "a bare kafka-python loop", theirs, "× as fast",
            figures[client]["ratios"], f"≥ {budget:g} ×", figures[client]["met"],
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=200_000, help="predictions")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clients", nargs="+", choices=list(BUDGETS), default=list(BUDGETS))
    parser.add_argument("--profile", action="store_true", help="print the top ten even if the budget is met")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    hold_log_back()
    figures: dict[str, Any] = {}
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        new = Topics(broker.bootstrap)
        runs = 0

        def mine(client: str) -> int:
            nonlocal runs
            runs += 1
            os.environ["STREAMCAL_KAFKA_LIBRARY"] = client
            outputs = [new("answers"), new("rejects"), new("maps")]
            return ours(broker, topics, outputs, events, Path(folder) / f"{runs}.db")

        def theirs() -> int:
            return bare(broker, topics, new("bare"), events)

        for count in (WARM_UP, options.events):
            topics = new("predictions"), new("labels")
            events = fill(broker, *topics, count)
            if count == WARM_UP:  # modules are imported, and the broker's code gets warm
                theirs()
                for client in options.clients:
                    mine(client)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ("loop", *options.clients)}
        for _ in range(options.repeats):
            times["loop"].append(timed(theirs, options.events))
            for client in options.clients:
                times[client].append(timed(partial(mine, client), options.events))
            print(
                "   ".join(
                    f"{name} {events / taken[-1][0]:,.0f} events/s, {taken[-1][1] / events * 1e6:.1f} µs"
                    for name, taken in times.items()
                ),
                flush=True,
            )
        for client in options.clients:
            pairs = zip(times["loop"], times[client], strict=True)
            ratios = [loop[1] / own[1] for loop, own in pairs]
            ratio, budget = statistics.median(ratios), BUDGETS[client]
            met = ratio >= budget
            print(f"{client}: {ratio:.2f} [{min(ratios):.2f}, {max(ratios):.2f}], budget ≥ {budget}: {met=}")
            figures[client] = {"ratios": ratios, "met": met}
            if options.profile or not met:
                profile(partial(mine, client))
    if options.json:
        figures |= {"events": events, "seconds": times}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()

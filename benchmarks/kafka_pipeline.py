"""Kafka to Kafka: `streamcal run` against a bare kafka-python loop, in the same run on the same broker.

The yardstick polls both topics, decodes every record with msgspec, and produces as many records of the same
sizes with the same keys; it keeps no state, joins nothing, and has no transactions. Both go through
kafka-python, and take turns. Each goes on a topic of its own; time is wall time, and, beside it, that of the
process on the processor: the broker shares the machine.

    python benchmarks/kafka_pipeline.py [--events 200000] [--repeats 3] [--profile]

Needs Java 17, as the tests do: the broker is theirs (tests/connectors/kafka/broker.py).
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))
warnings.filterwarnings("ignore", category=DeprecationWarning)

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402
from streamcal_connectors.kafka.cluster import require  # noqa: E402

from streamcal import JoinConfig  # noqa: E402
from streamcal.run.connectors import Connectors  # noqa: E402
from streamcal.run.pipeline import Pipeline  # noqa: E402
from streamcal.run.runner import Inputs, Outputs, Runner  # noqa: E402
from tests.connectors.kafka.broker import Broker  # noqa: E402
from tests.connectors.kafka.fixtures import Topics  # noqa: E402

BUDGET = 0.5
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
    return pipeline.counts.predictions


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=200_000, help="predictions")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print the top ten even if the budget is met")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    require()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        new = Topics(broker.bootstrap)
        topics = new("predictions"), new("labels")
        events = fill(broker, *topics, options.events)
        runs = 0

        def mine() -> int:
            nonlocal runs
            runs += 1
            outputs = [new("answers"), new("rejects"), new("maps")]
            return ours(broker, topics, outputs, events, Path(folder) / f"{runs}.db")

        def theirs() -> int:
            return bare(broker, topics, new("bare"), events)

        timed(theirs, options.events)  # the broker's code, too, has to get warm
        times: list[tuple[tuple[float, float], tuple[float, float]]] = []
        for _ in range(options.repeats):
            other, own = timed(theirs, options.events), timed(mine, options.events)
            times.append((own, other))
            print(
                f"streamcal {events / own[0]:9,.0f} events/s (processor {own[1]:.1f} s)   "
                f"bare loop {events / other[0]:9,.0f} events/s (processor {other[1]:.1f} s)   "
                f"ratio {other[0] / own[0]:.2f}",
                flush=True,
            )
        ratios = [other[0] / own[0] for own, other in times]
        ratio = statistics.median(ratios)
        met = ratio >= BUDGET
        print(f"ratio {ratio:.2f} [{min(ratios):.2f}, {max(ratios):.2f}], budget ≥ {BUDGET}: {met=}")
        if options.json:
            figures: dict[str, Any] = {"events": events, "ratios": ratios, "seconds": times, "met": met}
            options.json.write_text(json.dumps(figures, indent=2) + "\n")
        if options.profile or not met:
            profile(mine)


if __name__ == "__main__":
    main()

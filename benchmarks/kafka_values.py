"""What it takes to decode the value of a record: JSON text, and values with a schema.

Each goes through what the source of a topic uses, in polls of 10,000 records, and becomes columns. The
processor time is of one event, the median of several rounds in which all take turns.

    python benchmarks/kafka_values.py [--events 100000] [--repeats 5]

Needs no broker. The schemas are in a folder; confluent-kafka's framing is what the tests hold them to.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import fastavro
import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from streamcal_connectors.kafka.client import Chunk, TopicPartition
from streamcal_connectors.kafka.config import KafkaConfig
from streamcal_connectors.kafka.registry import open_registry
from streamcal_connectors.kafka.values import Values

from streamcal.events.blocks import Block

POLL = 10_000  # records
PARTITION = TopicPartition("events", 0)


def avro(folder: Path, rows: list[dict[str, Any]]) -> list[bytes]:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    kinds = {"id": "string", "score": "double", "time": ["null", moment]}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = {"type": "record", "name": "Prediction", "fields": fields}
    (folder / "17.avsc").write_text(json.dumps(schema))
    parsed, values = fastavro.parse_schema(schema), []
    for row in rows:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, parsed, row | {"time": int(row["time"] * 1000)})
        values.append(struct.pack(">bI", 0, 17) + data.getvalue())
    return values


def protobuf(folder: Path, rows: list[dict[str, Any]]) -> list[bytes]:
    file = descriptor_pb2.FileDescriptorProto(name="prediction.proto", syntax="proto3")
    made = file.message_type.add(name="Prediction")
    field = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate(
        {"id": field.TYPE_STRING, "score": field.TYPE_DOUBLE, "time": field.TYPE_DOUBLE}.items(), 1
    ):
        made.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    (folder / "18.desc").write_bytes(descriptors)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("Prediction"))
    return [struct.pack(">bIb", 0, 18, 0) + message(**row).SerializeToString() for row in rows]


def decoded(values: Values, raws: list[bytes]) -> float:
    """Return the processor time of an event, in seconds."""
    chunks = [raws[start : start + POLL] for start in range(0, len(raws), POLL)]
    begun = time.process_time()
    for chunk in chunks:
        values.prepare({PARTITION: Chunk(list(range(len(chunk))), list(chunk))})
        events = values.decode(chunk)
    taken = time.process_time() - begun
    assert isinstance(events, Block)
    return taken / len(raws)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    count = options.events
    rows = [{"id": f"{i:016x}", "score": (i + 0.5) / count, "time": 1.7e9 + i / 8} for i in range(count)]
    texts = [msgspec.json.encode(row) for row in rows]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "19.json").write_text("{}")
        registry = open_registry(KafkaConfig(schema_registry=name))
        assert registry is not None
        framed = Values(registry, "target", None)
        ways: dict[str, tuple[Values, list[bytes]]] = {
            "JSON": (Values(None, "target", None), texts),
            "JSON Schema": (framed, [struct.pack(">bI", 0, 19) + text for text in texts]),
            "Avro": (framed, avro(folder, rows)),
            "Protobuf": (framed, protobuf(folder, rows)),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(options.repeats + 1):
            for way, (values, raws) in ways.items():
                times[way].append(decoded(values, raws))
    for way, taken in times.items():
        rounds = [each * 1e6 for each in taken[1:]]  # the first one gets the schemas
        print(f"{way}: {statistics.median(rounds):.2f} µs [{min(rounds):.2f}, {max(rounds):.2f}]")


if __name__ == "__main__":
    main()

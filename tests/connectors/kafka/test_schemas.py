"""Values with a schema, as confluent-kafka's serializers write them, and those that mean harm."""

from __future__ import annotations

import io
import json
import logging
import re
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from confluent_kafka.schema_registry import Schema as ClientSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from streamcal_connectors.kafka.client import Chunk, TopicPartition
from streamcal_connectors.kafka.values import Values

from streamcal.events import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.blocks import Block
from streamcal.events.codec import Malformed
from streamcal.events.columns import Columns
from tests.connectors.kafka.registry import FIRST_ID, SchemaRegistry, decoded, reading
from tests.connectors.kafka.topics import BOTH, SECRET, Kafka, streamcal, until

CONTEXT = SerializationContext("events", MessageField.VALUE)
NOON = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
SECONDS = 1_772_366_400


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


def record(name: str = "R", **fields: Any) -> dict[str, Any]:
    made = [{"name": each, "type": kind} for each, kind in fields.items()]
    return {"type": "record", "name": name, "namespace": "tests", "fields": made}


SCORED = record(id="string", score="double")
PREDICTION = record(
    "Prediction",
    id="string",
    score="double",
    time=["null", logical("long", "timestamp-micros")],
    amount="int",
)
OUTCOME = {"type": "enum", "name": "Outcome", "symbols": ["NO", "YES"]}
LABEL = record("Label", id="string", label=OUTCOME, time=logical("long", "timestamp-millis"))
A_LABEL = {"id": "a", "label": "YES", "time": NOON}
A_PREDICTION = {"id": "a", "score": 0.5, "time": NOON, "amount": 7}


def reasons(events: Sequence[Any]) -> list[str | None]:
    return [event.reason if isinstance(event, Malformed) else None for event in events]


def avro(registry: SchemaRegistry, schema: Any, rows: Sequence[Any]) -> list[bytes]:
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(schema))
    return [serialize(row, CONTEXT) for row in rows]


TEXT, DOUBLE, INT32, INT64 = (
    getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name}")
    for name in ("STRING", "DOUBLE", "INT32", "INT64")
)
LABEL_FIELDS = {"id": TEXT, "label": INT32, "time": ".google.protobuf.Timestamp"}


def proto_file(name: str = "events.proto", imports: Sequence[str] = (), **messages: dict[str, Any]) -> Any:
    """Return a file of messages, by field its type; that of an ``optional`` one is in a list."""
    file = descriptor_pb2.FileDescriptorProto(
        name=name, package="tests", syntax="proto3", dependency=[f"{each}.proto" for each in imports]
    )
    for message, fields in messages.items():
        made = file.message_type.add(name=message)
        for number, (each, kind) in enumerate(fields.items(), 1):
            field = made.field.add(name=each, number=number, label=1)
            if isinstance(kind, list):
                (kind,) = kind
                field.proto3_optional, field.oneof_index = True, len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{each}")
            if isinstance(kind, str):
                field.type_name, kind = kind, 14 if kind == ".tests.Outcome" else 11  # an enum, a message
            field.type = kind
    return file


def kinds(*files: Any) -> Any:
    """Return what gives the class of a message by its name."""
    pool = descriptor_pool.DescriptorPool()
    for file in (timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tests.{name}"))


def protobuf(registry: SchemaRegistry, kind: Any, *rows: Any) -> list[bytes]:
    client = SchemaRegistryClient({"url": registry.url})
    serialize = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    return [serialize(kind(**row), CONTEXT) for row in rows]


@pytest.mark.parametrize("form", ["avro", "protobuf", "json"])
def test_whatever_brings_them_the_same_rows_are_the_same_events(registry: SchemaRegistry, form: str) -> None:
    """As columns."""
    rows = [{"id": f"a{i}", "score": i / 100, "time": 1e9 + i / 8, "key": None} for i in range(100)]
    if form == "avro":
        raws = avro(
            registry, record(id="string", score="double", time="double", key=["null", "string"]), rows
        )
    elif form == "protobuf":
        file = proto_file(Prediction={"id": TEXT, "score": DOUBLE, "time": [DOUBLE], "key": [TEXT]})
        raws = protobuf(registry, kinds(file)("Prediction"), *rows)
    else:
        schema = {"title": "Prediction", "type": "object", "properties": {"id": {"type": "string"}}}
        serialize = JSONSerializer(json.dumps(schema), SchemaRegistryClient({"url": registry.url}))
        raws = [serialize(row, CONTEXT) for row in rows]
    values, plain = reading(registry.url), Values({}, "target", None)
    decoded(values, raws)  # the first block tells their kind
    events, texts = values.decode(raws), [msgspec.json.encode(row) for row in rows]
    plain.decode(texts)
    assert isinstance(events, Block)
    assert list(events) == list(plain.decode(texts))
    assert values.unknown_fields == {}


@pytest.mark.parametrize(
    ("kind", "time", "seconds"),
    [
        (logical("long", "timestamp-millis"), NOON, SECONDS + 0.123),
        (["null", logical("long", "timestamp-micros")], None, None),
        (logical("long", "timestamp-nanos"), SECONDS * 10**9 + 123_456_789, SECONDS * 1e9 + 123_456_789),
        (logical("int", "date"), NOON.date(), SECONDS - 43_200),
        ("long", SECONDS * 1000 + 123, SECONDS * 1000 + 123),
        ("string", "2026-03-01T12:00:00Z", SECONDS),
    ],
)
def test_times_of_avro(registry: SchemaRegistry, kind: Any, time: Any, seconds: float | None) -> None:
    """A plain number stays in its unit, which the run judges; a timestamp is in seconds, even of 1971."""
    row = {"id": "a", "score": 0.5, "time": time}
    for count in (1, 80):  # one by one, and as columns
        raws = avro(registry, record(id="string", score="double", time=kind), [row] * count)
        assert set(decoded(reading(registry.url), raws)) == {PredictionEvent("a", 0.5, seconds)}


def test_columns_by_other_names_and_what_passes_through(registry: SchemaRegistry) -> None:
    columns = Columns(id="request", score="p", time="at", keep=("country", "seen", "absent"))
    names = {"request": "string", "p": "float", "at": "double", "country": ["null", "string"]}
    schema = record(**names, seen=logical("long", "timestamp-millis"), more="int")
    row = {"request": "a", "p": 0.5, "at": 3.0, "country": "NL", "seen": NOON, "more": 1}
    for count in (1, 80):
        values = reading(registry.url, columns)
        found = decoded(values, avro(registry, schema, [row] * count))
        kept = ("NL", "2026-03-01T12:00:00.123000+00:00", None)
        assert set(found) == {PredictionEvent("a", 0.5, 3.0, None, "target", None, kept)}
        assert values.unknown_fields == {"more": count}


def test_a_union_of_records_in_one_topic(registry: SchemaRegistry) -> None:
    """Schemas that are referred to, as for several kinds of events in one topic."""
    client, references = SchemaRegistryClient({"url": registry.url}), []
    for schema in (PREDICTION, LABEL):
        number = client.register_schema(schema["name"], ClientSchema(json.dumps(schema), "AVRO"))
        references.append(SchemaReference(f"tests.{schema['name']}", schema["name"], number))
    union = ClientSchema(json.dumps(["null", "tests.Prediction", "tests.Label"]), "AVRO", references)
    serialize = AvroSerializer(client, union)
    rows = ("tests.Prediction", A_PREDICTION), ("tests.Label", A_LABEL)
    raws = [serialize(row, CONTEXT) for row in rows]
    *events, null = decoded(reading(registry.url), [*raws, raws[0][:5] + b"\0"])
    assert events == [PredictionEvent("a", 0.5, SECONDS + 0.123456), LabelEvent("a", 1, SECONDS + 0.123)]
    assert null.reason == f"not to be decoded with schema {raws[0][4]}: it is no record"


def test_bytes_that_are_not_of_the_schema(registry: SchemaRegistry) -> None:
    (raw,) = avro(registry, PREDICTION, [A_PREDICTION])
    head = raw[:5]
    raws = [raw, raw[:-3], raw, head + b"\xff" * 9, head + b"\x02\xff" + bytes(20), head]
    found = reasons(decoded(reading(registry.url), raws))
    assert [each is None for each in found] == [True, False, True, False, False, False]
    assert all(f"schema {FIRST_ID}" in str(each) for each in found[1:5] if each)


def test_protobuf_has_defaults_and_presence(registry: SchemaRegistry) -> None:
    """Label 0 is not on the wire; an id or a time that is not there is none."""
    label = kinds(proto_file(imports=["google/protobuf/timestamp"], Label=LABEL_FIELDS))("Label")
    moment = {"seconds": SECONDS, "nanos": 123_456_789}
    rows = {"id": "a", "label": 0, "time": moment}, {"id": "b", "label": 1}, {"label": 1}
    *events, bad = decoded(reading(registry.url), protobuf(registry, label, *rows))
    assert events == [LabelEvent("a", 0, SECONDS + 0.1234567), LabelEvent("b", 1)]
    assert bad.reason == "missing field: a prediction or a label needs an id"

    wrapped = {
        "id": TEXT,
        "score": ".google.protobuf.DoubleValue",
        "label": [".tests.Outcome"],
        "time": INT64,
    }
    file = proto_file("other.proto", ["google/protobuf/wrappers"], Event=wrapped)
    outcome = file.enum_type.add(name="Outcome")
    for number, name in enumerate(["NO", "YES"]):
        outcome.value.add(name=name, number=number)
    score = {"value": 0.0}
    rows = (
        {"id": "a", "score": score},
        {"id": "b", "label": 0},
        {"id": "c", "label": 1, "score": score, "time": 9},
    )
    found = decoded(reading(registry.url), protobuf(registry, kinds(file)("Event"), *rows))
    assert found == [PredictionEvent("a", 0.0), LabelEvent("b", 0), LabelledEvent(0.0, 1, "c", 9.0)]


def test_several_messages_of_a_file_and_files_that_it_imports(registry: SchemaRegistry) -> None:
    base = proto_file("shared/money.proto", Money={"amount": DOUBLE})
    label = {"id": TEXT, "label": INT32}
    paid = {"id": TEXT, "score": DOUBLE, "paid": ".tests.Money"}
    file = proto_file(imports=["shared/money"], Other={"x": INT32}, Label=label, Prediction=paid)
    file.message_type[0].nested_type.add(name="Label").CopyFrom(file.message_type[1])
    kind = kinds(base, file)
    raws = [
        *protobuf(registry, kind("Prediction"), {"id": "a", "score": 0.5}),
        *protobuf(registry, kind("Label"), {"id": "a", "label": 1}),
        *protobuf(registry, kind("Other.Label"), {"id": "b", "label": 1}),
        *protobuf(registry, kind("Other"), {"x": 3}),
    ]
    assert len({raw[:5] for raw in raws}) == 1
    raws += [raws[0][:5] + b"\x02\x12\x00", raws[0][:5] + b"\x06\x02"]
    found = decoded(reading(registry.url), raws)
    assert found[:3] == [PredictionEvent("a", 0.5), LabelEvent("a", 1), LabelEvent("b", 1)]
    for event, said in zip(
        found[3:], ("must name score or label", "no message with the indexes [9]", "EOF"), strict=True
    ):
        assert said in event.reason


# The registry


def test_each_schema_is_asked_for_once_and_two_may_be_in_one_topic(registry: SchemaRegistry) -> None:
    """Schema evolution: each value is read with the schema that it was written with."""
    new = record(score="double", id="string", time="double")
    first = avro(registry, SCORED, [{"id": f"a{i}", "score": 0.5} for i in range(70)])
    second = avro(registry, new, [{"id": f"b{i}", "score": 0.25, "time": 1.0} for i in range(70)])
    raws: list[bytes | None] = [each for pair in zip(first, second, strict=True) for each in pair]
    raws[2:2] = [None, b'{"id":"j","score":1}', b"oops"]
    values = reading(registry.url)
    events = decoded(values, raws)
    assert events[:2] == [PredictionEvent("a0", 0.5), PredictionEvent("b0", 0.25, 1.0)]
    assert events[2].reason == "the record has no value"
    assert events[3] == PredictionEvent("j", 1.0)
    assert "not JSON" in events[4].reason
    assert len(events) == 143
    decoded(values, raws)
    wanted = [f"/schemas/ids/{number}?format=serialized" for number in (FIRST_ID, FIRST_ID + 1)]
    assert registry.asked == wanted


def test_a_schema_that_is_not_there(registry: SchemaRegistry) -> None:
    """It is the wrong registry, as long as nothing of the topic is in it."""
    raws = avro(registry, PREDICTION, [A_PREDICTION])
    strange = b"\0" + struct.pack(">I", 99) + b"data"
    missing = f"the schema registry at {registry.url} has no schema 99, or not all that it refers to"
    message = f"topic events, partition 0, offset 1 is of schema 99: {missing}. Let schema_registry"
    with pytest.raises(ValueError, match=re.escape(message)):
        decoded(reading(registry.url), [None, strange, b"{}", strange])
    values = reading(registry.url)
    assert reasons(decoded(values, [strange, *raws])) == [f"not an event: {missing}", None]
    assert reasons(decoded(values, [strange])) == [f"not an event: {missing}"]


def test_the_registry_may_be_away_refuse_or_be_none(
    registry: SchemaRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    raws = avro(registry, LABEL, [A_LABEL])
    chunk, values = {TopicPartition("events", 0): Chunk([0], list(raws))}, reading(registry.url)
    with caplog.at_level(logging.INFO, "streamcal_connectors"):
        for status in (503, 429, 500, 200):
            registry.status = status
            assert values.prepare(chunk) == (status == 200)
    away, back = [each.message for each in caplog.records]
    assert away.startswith(f"the schema registry at {registry.url} is away (SchemaRegistryError: ")
    assert back == f"the schema registry at {registry.url} is back: going on"
    assert not reading("http://127.0.0.1:9").prepare(chunk)  # nobody listens there
    registry.login = f"me:{SECRET}"
    with pytest.raises(OSError, match=r"refuses: .*401.*; see basic\.auth\.user\.info_file"):
        decoded(reading(registry.url), raws)
    (tmp_path / "secret").write_text(f"me:{SECRET}\n")
    login = {"basic.auth.user.info_file": str(tmp_path / "secret")}
    assert reasons(decoded(reading(registry.url, **login), raws)) == [None]
    registry.login = None
    registry.schemas[0] = {"schema": '{"type": "strange"}'}
    for status, message in ((400, r"is none: .*400"), (200, "is of schema 17: schema 17 cannot be used: ")):
        registry.status = status
        with pytest.raises(ValueError, match=message):
            decoded(reading(registry.url), raws)


# What a short record may cost


def fanned(levels: int, last: str) -> Any:
    """Return a record of two records of two records …: 2^levels of the last."""
    made: Any = record(f"L{levels}", x=last)
    for level in reversed(range(levels)):
        made = record(f"L{level}", x=made, y=f"tests.L{level + 1}")
    return made


def deep(levels: int) -> Any:
    """Return a record of a record of a record …"""
    made: Any = "int"
    for level in range(levels):
        made = record(f"D{level}", x=made)
    return made


def sized(size: int) -> bytes:
    """Return so many bytes with their number in front, as of a text."""
    data = io.BytesIO()
    fastavro.schemaless_writer(data, {"type": "bytes"}, bytes(size))
    return data.getvalue()


def many(kind: Any) -> Any:
    return {"type": "array", "items": kind}


NULLS = many("null")
DECIMAL = {**logical("bytes", "decimal"), "precision": 9, "scale": 3}
HEAD = b"\0\0\0\0\x11\x02a"  # of schema 17, and the id "a"
EVENT = HEAD + bytes(8)  # and the score 0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (NULLS, "takes no bytes"),
        (["null", {"type": "map", "values": ["string", NULLS]}], "takes no bytes"),
        (fanned(24, "int"), "more than 1,000 types"),
        (deep(80), "nested deeper than 64"),
        (["null", "tests.R"], "perhaps a type holds itself"),  # ten thousand levels end the process
    ],
    ids=["nulls", "maps", "fanned", "deep", "recursive"],
)
def test_a_schema_by_which_a_short_record_could_fill_the_memory_is_refused(
    registry: SchemaRegistry, more: Any, why: str
) -> None:
    registry.register({"schema": json.dumps(record(id="string", score="double", more=more))})
    with pytest.raises(ValueError, match=why):
        decoded(reading(registry.url), [EVENT])


@pytest.mark.parametrize(
    ("fields", "bomb", "why", "good", "score"),
    [
        # Of whatever there should be 2^31, there are none.
        ({"score": "double", "more": many(fanned(3, "int"))}, EVENT + b"\xfe\xff\xff\xff\x0f",
         "not to be decoded", EVENT + b"\0", 0.0),
        # As many items, of one byte each, as there are bytes.
        ({"score": "double", "more": many(record("B", x="boolean"))}, EVENT + sized(1 << 20) + b"\0",
         "at most 1,048,576 bytes, got 1,048,", EVENT + b"\x04\0\1\0", 0.0),
        # A decimal of 300 kB took fastavro 10 s, one of 1 MB 100 s.
        ({"score": DECIMAL}, HEAD + sized(1_000_000), "a decimal may have at most 256 bytes",
         HEAD + b"\x04" + (701).to_bytes(2), float(Decimal("0.701")))
    ],
    ids=["items", "bytes", "digits"]
)  # fmt: skip
def test_a_record_that_would_expand_is_not_decoded(
    registry: SchemaRegistry, fields: Any, bomb: bytes, why: str, good: bytes, score: float
) -> None:
    registry.register({"schema": json.dumps(record(id="string", **fields))})
    refused, event = decoded(reading(registry.url), [bomb, good])
    assert why in refused.reason
    assert event.score == score


# Topics


@BOTH
@pytest.mark.usefixtures("quick_cluster")
def test_nothing_is_lost_while_the_registry_is_away(
    kafka: Kafka, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic("labels", 2)
    raws = avro(registry, LABEL, [{"id": f"{i}", "label": "YES", "time": NOON} for i in range(20)])
    for partition in range(2):
        kafka.put(topic, raws[10 * partition : 10 * partition + 10], partition)
    monkeypatch.setenv("STREAMCAL_KAFKA_SCHEMA_REGISTRY", registry.url)
    registry.status = 503
    with kafka.opened(topic, "?until=end") as source:
        until(lambda: not source.poll(100, 0.05) and source._waits, "it does not wait")
        assert source.poll(100, 0.05) == ()
        assert not source.ended
        assert source.lag() == {"0": 10.0, "1": 10.0}
        registry.status = 200
        batches: list[Any] = []
        while not source.ended:
            batches += source.poll(7, 0.1)
    assert sorted(int(event.id) for batch in batches for event in batch.events) == list(range(20))


@pytest.mark.usefixtures("quick_cluster")
def test_a_whole_run(
    kafka: Kafka, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Avro predictions, Protobuf labels, and a record that is neither."""
    topics = {name: kafka.topic(name) for name in ("events", "labels", "output", "rejects")}
    rows = [
        {"id": f"{i}", "score": (i + 0.5) / 200, "time": NOON + timedelta(seconds=i), "amount": 7}
        for i in range(200)
    ]
    predictions = avro(registry, PREDICTION, rows)
    predictions[100:100] = [predictions[0][:9]]
    label = kinds(proto_file(imports=["google/protobuf/timestamp"], Label=LABEL_FIELDS))("Label")
    known = [{"id": f"{i}", "label": i % 2, "time": {"seconds": SECONDS + 60 + i}} for i in range(200)]
    kafka.put(topics["events"], predictions)
    kafka.put(topics["labels"], protobuf(registry, label, *known))
    monkeypatch.setenv("STREAMCAL_KAFKA_SCHEMA_REGISTRY", registry.url)
    ends = {"events": "?until=end", "labels": "?until=end"}
    options = [f"--{name}={kafka.url(topic, ends.get(name, ''))}" for name, topic in topics.items()]
    done = streamcal("run", *options, "--store", tmp_path / "s.db", status=0)
    answers = kafka.values(topics["output"])
    assert sorted(int(row["id"]) for row in answers) == list(range(200))
    assert min(row["time"] for row in answers) == SECONDS + 0.123456
    (reject,) = kafka.values(topics["rejects"])
    assert (reject["source"], reject["line"]) == (f"{topics['events']}/0", 100)
    assert f"not to be decoded with schema {FIRST_ID}" in reject["reason"]
    assert "amount" in done.stdout + done.stderr  # a field that events have not

"""Values with the id of a schema in front, as confluent-kafka's serializers write them."""

from __future__ import annotations

import io
import json
import logging
import re
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
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
from hypothesis import given, settings
from hypothesis import strategies as st
from streamcal_connectors.kafka.client import Chunk, TopicPartition
from streamcal_connectors.kafka.config import KafkaConfig
from streamcal_connectors.kafka.values import Values

from streamcal.events import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.blocks import Block
from streamcal.events.codec import Malformed
from streamcal.events.columns import Columns
from tests.connectors.kafka.clients import rows_of, until
from tests.connectors.kafka.fixtures import BOTH, AnyBroker, Topics
from tests.connectors.kafka.registry import FIRST_ID, SchemaRegistry, schema_registry
from tests.connectors.kafka.topics import SECRET, opened, put, streamcal, url

DOCS = Path(__file__).parents[3] / "docs" / "kafka.md"
CONTEXT = SerializationContext("events", MessageField.VALUE)
FIELD = descriptor_pb2.FieldDescriptorProto
NOON = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)

PREDICTION = {
    "type": "record",
    "name": "Prediction",
    "namespace": "tests",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "score", "type": "double"},
        {"name": "time", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "key", "type": ["null", "string"]},
        {"name": "amount", "type": ["null", "double"], "default": None},
    ],
}
LABEL = {
    "type": "record",
    "name": "Label",
    "namespace": "tests",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "label", "type": {"type": "enum", "name": "Outcome", "symbols": ["NO", "YES"]}},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as made:
        yield made


def values_of(place: str, columns: Columns | None = None, **options: Any) -> Values:
    table = {"url": place, **options}
    config = KafkaConfig.model_validate({"schema_registry": table, "request_seconds": 5})
    return Values(config.registry_options(), "target", columns)


def decoded(values: Values, raws: Sequence[bytes | None]) -> Sequence[Any]:
    assert values.prepare({TopicPartition("events", 0): Chunk(list(range(len(raws))), list(raws))})
    return values.decode(raws)


def reasons(events: Sequence[Any]) -> list[str | None]:
    return [event.reason if isinstance(event, Malformed) else None for event in events]


def avro(registry: SchemaRegistry, schema: Any, rows: Sequence[Any], **options: Any) -> list[bytes]:
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(schema), **options)
    return [serialize(row, CONTEXT) for row in rows]


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    made = [{"name": each, "type": kind} for each, kind in fields]
    return {"type": "record", "name": name, "namespace": "tests", "fields": made}


def proto_file(
    *messages: tuple[str, list[tuple[Any, ...]]], name: str = "events.proto", syntax: str = "proto3"
) -> Any:
    """Return a file of messages: of each field its name, its type, and whether it is ``optional``."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="tests", syntax=syntax)
    for message, fields in messages:
        made = file.message_type.add(name=message)
        for number, (each, kind, optional) in enumerate(fields, 1):
            field = made.field.add(name=each, number=number, label=FIELD.LABEL_OPTIONAL)
            if isinstance(kind, str):
                field.type, field.type_name = FIELD.TYPE_MESSAGE, kind
                if kind == ".tests.Outcome":
                    field.type = FIELD.TYPE_ENUM
            else:
                field.type = kind
            if optional:
                field.proto3_optional = True
                field.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{each}")
    return file


def pool_of(*files: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in (timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def kind_of(pool: Any, name: str) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tests.{name}"))


def protobuf(registry: SchemaRegistry, kind: Any, rows: Sequence[Any]) -> list[bytes]:
    client = SchemaRegistryClient({"url": registry.url})
    serialize = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    return [serialize(kind(**row), CONTEXT) for row in rows]


def plain(count: int) -> list[dict[str, Any]]:
    return [{"id": f"a{i}", "score": i / count, "time": 1e9 + i / 8, "key": None} for i in range(count)]


class TestSameAsJson:
    """Whatever brings them, the same rows are the same events, as columns."""

    COUNT = 100

    def of_json(self) -> Sequence[Any]:
        raws = [msgspec.json.encode(row) for row in plain(self.COUNT)]
        values = Values({}, "target", None)
        values.decode(raws)  # the first block tells their kind
        return values.decode(raws)

    def check(self, registry: SchemaRegistry, raws: list[bytes]) -> None:
        values = values_of(registry.url)
        decoded(values, raws)
        events = values.decode(raws)
        assert isinstance(events, Block)
        assert list(events) == list(self.of_json())
        assert values.unknown_fields == {}

    def test_avro(self, registry: SchemaRegistry) -> None:
        schema = record(
            ("id", "string"), ("score", "double"), ("time", "double"), ("key", ["null", "string"])
        )
        self.check(registry, avro(registry, schema, plain(self.COUNT)))

    def test_protobuf(self, registry: SchemaRegistry) -> None:
        fields = [
            ("id", FIELD.TYPE_STRING, False),
            ("score", FIELD.TYPE_DOUBLE, False),
            ("time", FIELD.TYPE_DOUBLE, True),
            ("key", FIELD.TYPE_STRING, True),
        ]
        kind = kind_of(pool_of(proto_file(("Prediction", fields))), "Prediction")
        self.check(registry, protobuf(registry, kind, plain(self.COUNT)))

    def test_json_schema(self, registry: SchemaRegistry) -> None:
        schema = {"title": "Prediction", "type": "object", "properties": {"id": {"type": "string"}}}
        serialize = JSONSerializer(json.dumps(schema), SchemaRegistryClient({"url": registry.url}))
        self.check(registry, [serialize(row, CONTEXT) for row in plain(self.COUNT)])


NAMES = (
    st.none() | st.sampled_from(["", "a", "é", "x\ny", "source", "target", "x" * 600]) | st.text(max_size=5)
)
ROWS = st.fixed_dictionaries(
    {
        "id": NAMES,
        "score": st.none() | st.floats(-0.5, 1.5) | st.sampled_from([0.0, 1.0, -0.0, 37.5]),
        "label": st.none() | st.integers(-1, 2),
        "time": st.none() | st.floats(-1e21, 1e21),
        "key": NAMES,
        "domain": NAMES,
    }
)


@pytest.fixture(scope="module")
def columns_registry() -> Iterator[SchemaRegistry]:
    """Return a registry with the schema of `ROWS`."""
    kinds = {"score": "double", "label": "int", "time": "double"}
    names = ("id", "score", "label", "time", "key", "domain")
    schema = record(*((name, ["null", kinds.get(name, "string")]) for name in names))
    with schema_registry() as made:
        made.register("events", {"schema": json.dumps(schema)})
        yield made


class TestOneRule:
    @pytest.mark.slow
    @given(st.lists(ROWS, max_size=8), st.sampled_from([1, 40]), st.booleans())
    @settings(max_examples=20, deadline=None)
    def test_what_is_an_event_in_json_is_one_in_avro(
        self, columns_registry: SchemaRegistry, rows: list[dict[str, Any]], times: int, positive: bool
    ) -> None:
        """The same events, and the same refusals."""
        columns = Columns(positive=1 if positive else None)
        parsed = fastavro.parse_schema(json.loads(columns_registry.schemas[0]["schema"]))
        raws: list[bytes] = []
        for row in rows * times:
            data = io.BytesIO(b"")
            fastavro.schemaless_writer(data, parsed, row)
            raws.append(b"\0\0\0\0\x11" + data.getvalue())
        texts = [msgspec.json.encode({k: v for k, v in row.items() if v is not None}) for row in rows * times]
        found = list(decoded(values_of(columns_registry.url, columns), raws))
        wanted = list(Values({}, "target", columns).decode(texts))
        assert [event for event in found if not isinstance(event, Malformed)] == [
            event for event in wanted if not isinstance(event, Malformed)
        ]
        for mine, his in zip(reasons(found), reasons(wanted), strict=True):
            assert mine == his


class TestAvro:
    @pytest.mark.parametrize(
        ("kind", "time", "seconds"),
        [
            ({"type": "long", "logicalType": "timestamp-millis"}, NOON, 1_772_366_400.123),
            (["null", {"type": "long", "logicalType": "timestamp-micros"}], None, None),
            (
                {"type": "long", "logicalType": "timestamp-nanos"},
                1_772_366_400_123_456_789,
                1_772_366_400_123_456_789.0,
            ),
            ({"type": "int", "logicalType": "date"}, NOON.date(), 1_772_323_200.0),
            ("long", 1_772_366_400_123, 1_772_366_400_123.0),
            ("string", "2026-03-01T12:00:00Z", 1_772_366_400.0),
        ],
    )
    def test_times(self, registry: SchemaRegistry, kind: Any, time: Any, seconds: float | None) -> None:
        """A plain number stays in its unit, which the run judges; a timestamp is in seconds, even of 1971."""
        schema = record(("id", "string"), ("score", "double"), ("time", kind))
        # Alone and among many: one by one, and as columns.
        for count in (1, 80):
            raws = avro(registry, schema, [{"id": "a", "score": 0.5, "time": time}] * count)
            assert set(decoded(values_of(registry.url), raws)) == {PredictionEvent("a", 0.5, seconds)}

    def test_columns_by_other_names_and_what_passes_through(self, registry: SchemaRegistry) -> None:
        columns = Columns(id="request", score="p", time="at", keep=("country", "seen", "absent"))
        schema = record(
            ("request", "string"),
            ("p", "float"),
            ("at", "double"),
            ("country", ["null", "string"]),
            ("seen", {"type": "long", "logicalType": "timestamp-millis"}),
            ("more", "int"),
        )
        row = {"request": "a", "p": 0.5, "at": 3.0, "country": "NL", "seen": NOON, "more": 1}
        for count in (1, 80):
            values = values_of(registry.url, columns)
            found = decoded(values, avro(registry, schema, [row] * count))
            kept = ("NL", "2026-03-01T12:00:00.123000+00:00", None)
            assert set(found) == {PredictionEvent("a", 0.5, 3.0, None, "target", None, kept)}
            assert values.unknown_fields == {"more": count}

    def test_a_union_of_records_in_one_topic(self, registry: SchemaRegistry) -> None:
        """Schemas that are referred to, as for several kinds of events in one topic."""
        client = SchemaRegistryClient({"url": registry.url})
        references = []
        for schema in (PREDICTION, LABEL):
            client.register_schema(schema["name"], ClientSchema(json.dumps(schema), "AVRO"))
            references.append(SchemaReference(f"tests.{schema['name']}", schema["name"], 1))
        union = ClientSchema(json.dumps(["null", "tests.Prediction", "tests.Label"]), "AVRO", references)
        serialize = AvroSerializer(client, union)
        rows = [
            ("tests.Prediction", {"id": "a", "score": 0.5, "time": NOON, "key": None, "amount": None}),
            ("tests.Label", {"id": "a", "label": "YES", "time": NOON}),
        ]
        raws = [serialize(row, CONTEXT) for row in rows] + [serialize(None, CONTEXT)]
        raws[2] = raws[0][:5] + b"\x00"  # null
        found = decoded(values_of(registry.url), raws)
        assert found[:2] == [
            PredictionEvent("a", 0.5, 1_772_366_400.123456),
            LabelEvent("a", 1, 1_772_366_400.123),
        ]
        assert found[2].reason == f"not to be decoded with schema {raws[0][4]}: it is no record"

    def test_bytes_that_are_not_of_the_schema(self, registry: SchemaRegistry) -> None:
        rows = [{"id": "a", "score": 0.5, "time": NOON, "key": None, "amount": None}] * 3
        raws = avro(registry, PREDICTION, rows)
        raws[1] = raws[1][:-3]
        raws += [raws[0][:5] + b"\xff" * 9, raws[0][:5] + b"\x02\xff" + bytes(20), raws[0][:5]]
        found = reasons(decoded(values_of(registry.url), raws))
        assert [each is None for each in found] == [True, False, True, False, False, False]
        assert all(f"schema {FIRST_ID}" in str(each) for each in found[1:5] if each)

    def test_a_recursive_schema_cannot_end_the_process(self, registry: SchemaRegistry) -> None:
        """With fastavro 1.13, ten thousand levels end it: a record of 10 kB could stop every run."""
        schema = record(("id", "string"), ("score", "double"), ("next", ["null", "tests.R"]))
        row = {"id": "a", "score": 0.5, "next": None}
        (raw,) = avro(registry, schema, [row])
        with pytest.raises(ValueError, match="perhaps a type holds itself"):
            decoded(values_of(registry.url), [raw])


LABEL_FIELDS = [
    ("id", FIELD.TYPE_STRING, False),
    ("label", FIELD.TYPE_INT32, False),
    ("time", ".google.protobuf.Timestamp", False),
]


class TestProtobuf:
    def test_a_field_without_presence_has_its_default(self, registry: SchemaRegistry) -> None:
        """Label 0 is not on the wire; an id or a time that is not there is none."""
        file = proto_file(("Label", LABEL_FIELDS))
        file.dependency.append("google/protobuf/timestamp.proto")
        moment = {"seconds": 1_772_366_400, "nanos": 123_456_789}
        rows = [{"id": "a", "label": 0, "time": moment}, {"id": "b", "label": 1}, {"label": 1}]
        raws = protobuf(registry, kind_of(pool_of(file), "Label"), rows)
        found = decoded(values_of(registry.url), raws)
        assert found[:2] == [LabelEvent("a", 0, 1_772_366_400.1234567), LabelEvent("b", 1)]
        assert found[2].reason == "missing field: a prediction or a label needs an id"

    def test_optional_fields_wrappers_and_enums(self, registry: SchemaRegistry) -> None:
        fields = [
            ("id", FIELD.TYPE_STRING, False),
            ("score", ".google.protobuf.DoubleValue", False),
            ("label", ".tests.Outcome", True),
            ("time", FIELD.TYPE_INT64, False),
        ]
        file = proto_file(("Event", fields))
        file.dependency.append("google/protobuf/wrappers.proto")
        outcome = file.enum_type.add(name="Outcome")
        for number, name in enumerate(["NO", "YES"]):
            outcome.value.add(name=name, number=number)
        kind = kind_of(pool_of(file), "Event")
        score = {"value": 0.0}
        rows = [
            {"id": "a", "score": score},
            {"id": "b", "label": 0},
            {"id": "c", "label": 1, "score": score, "time": 9},
        ]
        found = decoded(values_of(registry.url), protobuf(registry, kind, rows))
        assert found == [PredictionEvent("a", 0.0), LabelEvent("b", 0), LabelledEvent(0.0, 1, "c", 9.0)]

    def test_several_messages_of_a_file_and_files_that_it_imports(self, registry: SchemaRegistry) -> None:
        base = proto_file(("Money", [("amount", FIELD.TYPE_DOUBLE, False)]), name="shared/money.proto")
        fields = [
            ("id", FIELD.TYPE_STRING, False),
            ("score", FIELD.TYPE_DOUBLE, False),
            ("paid", ".tests.Money", False),
        ]
        file = proto_file(
            ("Other", [("x", FIELD.TYPE_INT32, False)]), ("Label", LABEL_FIELDS[:2]), ("Prediction", fields)
        )
        file.dependency.append("shared/money.proto")
        inner = file.message_type[0].nested_type.add(name="Label")
        inner.CopyFrom(file.message_type[1])
        pool = pool_of(base, file)
        raws = [
            *protobuf(registry, kind_of(pool, "Prediction"), [{"id": "a", "score": 0.5}]),
            *protobuf(registry, kind_of(pool, "Label"), [{"id": "a", "label": 1}]),
            *protobuf(registry, kind_of(pool, "Other.Label"), [{"id": "b", "label": 1}]),
            *protobuf(registry, kind_of(pool, "Other"), [{"x": 3}]),
        ]
        assert len({raw[:5] for raw in raws}) == 1
        raws += [raws[0][:5] + b"\x02\x12\x00", raws[0][:5] + b"\x06\x02"]
        found = decoded(values_of(registry.url), raws)
        assert found[:3] == [PredictionEvent("a", 0.5), LabelEvent("a", 1), LabelEvent("b", 1)]
        assert "must name score or label" in found[3].reason
        assert "no message with the indexes [9]" in found[4].reason
        assert "Unexpected EOF" in found[5].reason


class TestRegistry:
    def test_each_schema_is_asked_for_once_and_two_may_be_in_one_topic(
        self, registry: SchemaRegistry
    ) -> None:
        """Schema evolution: each value is read with the schema that it was written with."""
        old = record(("id", "string"), ("score", "float"))
        new = record(("score", "double"), ("id", "string"), ("time", "double"))
        first = avro(registry, old, [{"id": f"a{i}", "score": 0.5} for i in range(70)])
        second = avro(registry, new, [{"id": f"b{i}", "score": 0.25, "time": 1.0} for i in range(70)])
        raws: list[bytes | None] = [each for pair in zip(first, second, strict=True) for each in pair]
        raws[4:4] = [None, b'{"id":"j","score":1}', b"oops"]
        values = values_of(registry.url)
        events = decoded(values, raws)
        assert events[:4] == [
            PredictionEvent("a0", 0.5),
            PredictionEvent("b0", 0.25, 1.0),
            PredictionEvent("a1", 0.5),
            PredictionEvent("b1", 0.25, 1.0),
        ]
        assert events[4].reason == "the record has no value"
        assert events[5] == PredictionEvent("j", 1.0)
        assert "not JSON" in events[6].reason
        assert len(events) == 143
        decoded(values, raws)
        assert registry.asked == [
            f"/schemas/ids/{number}?format=serialized" for number in (FIRST_ID, FIRST_ID + 1)
        ]

    def test_a_schema_that_is_not_there(self, registry: SchemaRegistry) -> None:
        """It is the wrong registry, as long as nothing of the topic is in it."""
        raws = avro(
            registry, PREDICTION, [{"id": "a", "score": 0.5, "time": NOON, "key": None, "amount": None}]
        )
        strange = b"\0" + struct.pack(">I", 99) + b"data"
        missing = f"the schema registry at {registry.url} has no schema 99, or not all that it refers to"
        message = f"topic events, partition 0, offset 1 is of schema 99: {missing}. Let schema_registry"
        with pytest.raises(ValueError, match=re.escape(message)):
            decoded(values_of(registry.url), [None, strange, b"{}", strange])
        values = values_of(registry.url)
        assert reasons(decoded(values, [strange, *raws])) == [f"not an event: {missing}", None]
        assert reasons(decoded(values, [strange])) == [f"not an event: {missing}"]

    def test_it_may_be_away_and_come_back(
        self, registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
    ) -> None:
        raws = avro(registry, LABEL, [{"id": "a", "label": "YES", "time": NOON}])
        chunk = {TopicPartition("events", 0): Chunk([0], list(raws))}
        values = values_of(registry.url)
        with caplog.at_level(logging.INFO, "streamcal_connectors"):
            for status in (503, 429, 500):
                registry.status = status
                assert not values.prepare(chunk)
            registry.status = 200
            assert values.prepare(chunk)
        away, back = [each.message for each in caplog.records]
        assert away.startswith(f"the schema registry at {registry.url} is away (SchemaRegistryError: ")
        assert back == f"the schema registry at {registry.url} is back: going on"
        assert not values_of("http://127.0.0.1:9").prepare(chunk)  # nobody listens there

    def test_it_may_refuse_or_be_none(self, registry: SchemaRegistry, tmp_path: Path) -> None:
        raws = avro(registry, LABEL, [{"id": "a", "label": "YES", "time": NOON}])
        registry.login = f"me:{SECRET}"
        with pytest.raises(OSError, match=r"refuses: .*401.*; see basic\.auth\.user\.info_file"):
            decoded(values_of(registry.url), raws)
        (tmp_path / "secret").write_text(f"me:{SECRET}\n")
        login = {"basic.auth.user.info_file": str(tmp_path / "secret")}
        assert reasons(decoded(values_of(registry.url, **login), raws)) == [None]
        registry.login = None
        registry.status = 400
        with pytest.raises(ValueError, match=r"is none: .*400"):
            decoded(values_of(registry.url), raws)
        registry.status = 200
        registry.schemas[0] = {"schema": '{"type": "strange"}'}
        with pytest.raises(ValueError, match=r"is of schema 17: schema 17 cannot be used: "):
            decoded(values_of(registry.url), raws)


@pytest.mark.usefixtures("quick_cluster")
class TestTopics:
    @BOTH
    def test_nothing_is_lost_while_the_registry_is_away(
        self,
        kafka_broker: AnyBroker,
        new_topic: Topics,
        registry: SchemaRegistry,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        topic = new_topic("labels", 2)
        rows = [{"id": f"{i}", "label": "YES", "time": NOON + timedelta(seconds=i)} for i in range(20)]
        raws = avro(registry, LABEL, rows)
        for partition in range(2):
            put(kafka_broker, topic, raws[10 * partition : 10 * partition + 10], partition)
        monkeypatch.setenv("STREAMCAL_KAFKA_SCHEMA_REGISTRY", registry.url)
        registry.status = 503
        with opened(kafka_broker, topic, "?until=end") as source:
            source.seek({})
            until(lambda: not source.poll(100, 0.05) and bool(source._waits), "it does not wait")
            for _ in range(5):
                assert source.poll(100, 0.05) == ()
            assert not source.ended
            assert source.lag() == {"0": 10.0, "1": 10.0}
            registry.status = 200
            batches: list[Any] = []
            while not source.ended:
                batches += source.poll(7, 0.1)
        assert sorted(int(event.id) for batch in batches for event in batch.events) == list(range(20))

    def test_a_whole_run(
        self,
        kafka_broker: AnyBroker,
        new_topic: Topics,
        registry: SchemaRegistry,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        """Avro predictions, Protobuf labels, and a record that is neither."""
        topics = {name: new_topic(name) for name in ("predictions", "labels", "answers", "rejects")}
        rows = [
            {
                "id": f"{i}",
                "score": (i + 0.5) / 200,
                "time": NOON + timedelta(seconds=i),
                "key": None,
                "amount": None,
            }
            for i in range(200)
        ]
        predictions = avro(registry, PREDICTION, rows)
        predictions[100:100] = [predictions[0][:9]]
        file = proto_file(("Label", LABEL_FIELDS))
        file.dependency.append("google/protobuf/timestamp.proto")
        known = [{"seconds": int(NOON.timestamp()) + 60 + i} for i in range(200)]
        told = [{"id": f"{i}", "label": i % 2, "time": time} for i, time in enumerate(known)]
        labels = protobuf(registry, kind_of(pool_of(file), "Label"), told)
        put(kafka_broker, topics["predictions"], predictions)
        put(kafka_broker, topics["labels"], labels)
        monkeypatch.setenv("STREAMCAL_KAFKA_SCHEMA_REGISTRY", registry.url)
        done = streamcal(
            "run",
            *("--events", url(kafka_broker, topics["predictions"], "?until=end")),
            *("--labels", url(kafka_broker, topics["labels"], "?until=end")),
            *("--output", url(kafka_broker, topics["answers"])),
            *("--rejects", url(kafka_broker, topics["rejects"])),
            *("--store", tmp_path / "s.db"),
        )
        assert done.returncode == 0, done.stderr
        answers = [msgspec.json.decode(each.value) for each in rows_of(kafka_broker, topics["answers"])]
        assert sorted(int(row["id"]) for row in answers) == list(range(200))
        assert min(row["time"] for row in answers) == 1_772_366_400.123456
        (reject,) = [msgspec.json.decode(each.value) for each in rows_of(kafka_broker, topics["rejects"])]
        assert (reject["source"], reject["line"]) == (f"{topics['predictions']}/0", 100)
        assert f"not to be decoded with schema {FIRST_ID}" in reject["reason"]
        assert "amount" in done.stdout + done.stderr  # a field that events have not

    def test_the_example_of_the_docs(
        self,
        kafka_broker: AnyBroker,
        new_topic: Topics,
        registry: SchemaRegistry,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
        topic = new_topic("predictions")
        for there, here in (
            ("http://registry:8081", registry.url),
            ("broker:9092", kafka_broker.bootstrap),
            ('"predictions"', repr(topic)),
        ):
            assert there in code
            code = code.replace(there, here)
        exec(code, {})
        monkeypatch.setenv("STREAMCAL_KAFKA_SCHEMA_REGISTRY", registry.url)
        with opened(kafka_broker, topic, "?until=end") as source:
            source.seek({})
            batches: list[Any] = []
            while not source.ended:
                batches += source.poll(1000, 0.1)
        events = [event for batch in batches for event in batch.events]
        assert events[1] == PredictionEvent("a1", 0.01, 1_772_366_400.001)
        assert len(events) == 100

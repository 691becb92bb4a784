"""Schemas and registries that mean harm: what a short record, or an answer without end, may cost."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamcal_connectors.kafka.avro import AvroSchema
from streamcal_connectors.kafka.config import KafkaConfig
from streamcal_connectors.kafka.registry import AwayError, RemoteRegistry

from streamcal.events.codec import Malformed
from tests.connectors.kafka.test_schemas import decoded, record, values_of

HEAD = b"\0\0\0\0\x11"  # of schema 17
SCORE = [("id", "string"), ("score", "double")]
EVENT = b"\x02a" + bytes(8)  # the id "a", the score 0

NULLS = {"type": "array", "items": "null"}
TWO_NULLS = {"type": "array", "items": record(("x", "null"), ("y", "null"), name="Two")}
NO_FIELDS = {"type": "array", "items": record(name="None")}
NO_BYTES = {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}
WIDE = record(("n", "int"), *((f"x{i}", "null") for i in range(50)), name="Wide")


def fanned(levels: int, last: str) -> dict[str, Any]:
    """Return a record of two records of two records …: 2^levels of the last."""
    made: Any = record(("x", last), name=f"L{levels}")
    for level in reversed(range(levels)):
        made = record(("x", made), ("y", f"tests.L{level + 1}"), name=f"L{level}")
    return dict(made)


def chained(levels: int) -> list[dict[str, Any]]:
    """Return records that each hold the one before."""
    made = [record(*SCORE, name="C0")]
    return made + [record(("x", f"tests.C{level - 1}"), name=f"C{level}") for level in range(1, levels)]


def registry_at(url: str, seconds: float) -> RemoteRegistry:
    return RemoteRegistry(url, KafkaConfig(schema_registry=url, request_seconds=seconds))


def made(schema: Any) -> AvroSchema:
    return AvroSchema({"": json.dumps(schema).encode()})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (NULLS, "items of its array take no bytes"),
        (TWO_NULLS, "items of its array take no bytes"),
        (NO_FIELDS, "items of its array take no bytes"),
        (NO_BYTES, "items of its array take no bytes"),
        ({"type": "array", "items": WIDE}, "items of its array take no bytes, or hardly any"),
        ({"type": "map", "values": WIDE}, "items of its map take no bytes, or hardly any"),
        ({"type": "array", "items": {"type": "array", "items": "null"}}, "items of its array"),
        (["null", {"type": "map", "values": ["string", NULLS]}], "items of its array"),
        (fanned(24, "null"), "expand to more than 1,000 values that take no bytes"),
        (["null", fanned(24, "null")], "expand to more than 1,000 values that take no bytes"),
        (fanned(80, "int"), "nested deeper than 64"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_schema_by_which_a_short_record_could_fill_the_memory_is_refused(more: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        made(record(*SCORE, ("more", more)))


@pytest.mark.parametrize("apart", [True, False])
def test_types_that_nest_too_deep_by_their_names_are_refused(apart: bool) -> None:
    chain = chained(2000)
    parts = {each["name"]: json.dumps(each).encode() for each in chain}
    with pytest.raises(ValueError, match="nested deeper than 64"):
        AvroSchema(parts if apart else {"": json.dumps(chain).encode()})


@pytest.mark.parametrize(
    "more",
    [
        {"type": "array", "items": "boolean"},
        {"type": "array", "items": ["null", "int"]},
        {"type": "array", "items": record(("x", "null"), ("y", "int"), name="Two")},
        {"type": "map", "values": "null"},
        {"type": "map", "values": {"type": "array", "items": "string"}},
        fanned(24, "int"),
        record(*((f"x{i}", ["null", "string"]) for i in range(3000)), name="Wide"),
    ],
)
def test_what_takes_bytes_is_read_as_far_as_there_are_some(more: Any, tmp_path: Path) -> None:
    (tmp_path / "17.avsc").write_text(json.dumps(record(*SCORE, ("more", more))))
    (event,) = decoded(values_of(str(tmp_path)), [HEAD + EVENT + b"\xfe\xff\xff\xff\x0f"])
    assert isinstance(event, Malformed)  # of whatever there should be 2^31, there are none


KINDS = st.recursive(
    st.sampled_from(["null", "boolean", "int", "string", "double"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda kinds: ("record", kinds)),
        inner.map(lambda kind: ("array", kind)),
        inner.map(lambda kind: ("map", kind)),
        inner.map(lambda kind: ("maybe", kind)),
    ),
    max_leaves=12,
)


class Schemas:
    """Turns such kinds into schemas, and draws values of them as large as they get."""

    def __init__(self) -> None:
        self.names = 0

    def of(self, kind: Any) -> Any:
        if isinstance(kind, str):
            return kind
        what, inner = kind
        if what == "record":
            self.names += 1
            name = f"R{self.names}"
            return record(*((f"f{i}", self.of(each)) for i, each in enumerate(inner)), name=name)
        if what == "maybe":
            found = self.of(inner)
            return found if isinstance(found, list) or found == "null" else ["null", found]
        return {"type": what, "items" if what == "array" else "values": self.of(inner)}


def largest(schema: Any, count: int) -> Any:
    """Return a value of a schema with so many items wherever there may be some, each as short as may be."""
    if isinstance(schema, list):
        return largest(schema[1], count)
    if isinstance(schema, str):
        return {"null": None, "boolean": True, "int": 0, "string": "", "double": 0.0}[schema]
    if schema["type"] == "record":
        return {field["name"]: largest(field["type"], count) for field in schema["fields"]}
    if schema["type"] == "array":
        return [largest(schema["items"], count)] * count
    return {f"{i}": largest(schema["values"], count) for i in range(count)}


def size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(size, value.values()))
    return 1 + sum(map(size, value)) if isinstance(value, list) else 1


@given(KINDS, st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_a_record_never_expands_to_more_than_its_bytes_allow(kind: Any, count: int) -> None:
    schema = record(("id", "string"), ("more", Schemas().of(kind)), name="Whole")
    try:
        made(schema)
    except ValueError:
        return
    value = largest(schema, count)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    assert size(value) <= 8 * len(stream.getvalue()) + 1000


def test_a_decimal_of_many_digits_costs_nothing(tmp_path: Path) -> None:
    """A decimal of 300 kB took fastavro 10 s, one of 1 MB 100 s."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}
    (tmp_path / "17.avsc").write_text(json.dumps(record(("id", "string"), ("score", decimal))))
    long = io.BytesIO()
    fastavro.schemaless_writer(long, {"type": "bytes"}, b"\x7f" * 1_000_000)
    short = b"\x04" + (701).to_bytes(2)
    events = decoded(values_of(str(tmp_path)), [HEAD + b"\x02a" + each for each in (long.getvalue(), short)])
    assert "a decimal may have at most 256 bytes, got 1,000,000" in events[0].reason
    assert events[1].score == float(Decimal("0.701"))


@contextmanager
def answering(*parts: bytes, pause: float = 0.0, tls: bool = False) -> Iterator[str]:
    """Give the address of a server that answers anything with these bytes, the last of them without end."""
    over = threading.Event()

    def answer(taken: socket.socket) -> None:
        with suppress(OSError), taken:
            if not tls:
                taken.recv(1 << 16)
            for part in parts:
                taken.sendall(part)
            while not over.wait(pause):
                taken.sendall(parts[-1])

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=listener.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        listener.shutdown(socket.SHUT_RDWR)


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = b"10000\r\n" + b" " * 65536 + b"\r\n"


@pytest.mark.parametrize("head", [OK + b"\r\n", CHUNKED], ids=["plain", "chunked"])
def test_an_answer_of_any_size_takes_a_few_megabytes(head: bytes) -> None:
    more = LONG if head is CHUNKED else b" " * 65536
    with answering(head, more) as url, pytest.raises(ValueError, match="has more than 4 MiB"):
        registry_at(url, 30.0).schema(17)


@pytest.mark.parametrize(
    ("parts", "tls"),
    [
        ((OK + b"\r\n", b" "), False),
        ((OK + b"Content-Length: 1000000\r\n\r\n", b" "), False),
        ((CHUNKED, b"1\r\n \r\n"), False),
        ((OK, b"X: y\r\n"), False),
        ((b"H", b"T"), False),
        ((b"\x16\x03\x03\x40\x00", b"\x02"), True),
    ],
    ids=["body", "length", "chunks", "headers", "status", "handshake"],
)
def test_an_answer_that_drips_is_cut_in_time(parts: tuple[bytes, ...], tls: bool) -> None:
    with answering(*parts, pause=0.05, tls=tls) as url:
        registry = registry_at(url, 1.0)
        begun = time.monotonic()
        with pytest.raises(AwayError):
            registry.schema(17)
        assert time.monotonic() - begun < 30.0  # without the limit, it never ends

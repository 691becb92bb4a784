"""Schemas and records that mean harm: what a short record may cost."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamcal_connectors.kafka.schemas import refuse_bombs

from streamcal.events.codec import Malformed
from tests.connectors.kafka.registry import schema_registry
from tests.connectors.kafka.test_schemas import decoded, record, values_of

HEAD = b"\0\0\0\0\x11"  # of schema 17
SCORE = [("id", "string"), ("score", "double")]
EVENT = b"\x02a" + bytes(8)  # the id "a", the score 0

NULLS = {"type": "array", "items": "null"}


def fanned(levels: int, last: str) -> dict[str, Any]:
    """Return a record of two records of two records …: 2^levels of the last."""
    made: Any = record(("x", last), name=f"L{levels}")
    for level in reversed(range(levels)):
        made = record(("x", made), ("y", f"tests.L{level + 1}"), name=f"L{level}")
    return dict(made)


def deep(levels: int) -> dict[str, Any]:
    """Return a record of a record of a record …"""
    made: Any = "int"
    for level in range(levels):
        made = record(("x", made), name=f"D{level}")
    return dict(made)


def checked(schema: Any) -> None:
    refuse_bombs(fastavro.parse_schema(schema))


def read(schema: Any, *values: bytes) -> Any:
    with schema_registry() as registry:
        registry.register("events", {"schema": json.dumps(schema)})
        return decoded(values_of(registry.url), [HEAD + value for value in values])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (NULLS, "takes no bytes"),
        (["null", {"type": "map", "values": ["string", NULLS]}], "takes no bytes"),
        (fanned(24, "int"), "more than 1,000 types"),
        ({"type": "array", "items": fanned(3, "int")}, None),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_schema_by_which_a_short_record_could_fill_the_memory_is_refused(
    more: Any, why: str | None
) -> None:
    schema = record(*SCORE, ("more", more))
    if why is None:
        (event,) = read(schema, EVENT + b"\xfe\xff\xff\xff\x0f")
        assert isinstance(event, Malformed)  # of whatever there should be 2^31, there are none
        return
    with pytest.raises(ValueError, match=why):
        checked(schema)
    with pytest.raises(ValueError, match=why):
        read(schema, EVENT)


def test_types_that_nest_too_deep_by_their_names_are_refused() -> None:
    with pytest.raises(ValueError, match="nested deeper than 64"):
        checked(deep(80))


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
@settings(max_examples=100, deadline=None)
def test_a_record_never_expands_to_more_than_its_bytes_allow(kind: Any, count: int) -> None:
    schema = record(("id", "string"), ("more", Schemas().of(kind)), name="Whole")
    try:
        checked(schema)
    except ValueError:
        return
    value = largest(schema, count)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    assert size(value) <= 9 * len(stream.getvalue()) + 1000


def test_a_decimal_of_many_digits_costs_nothing() -> None:
    """A decimal of 300 kB took fastavro 10 s, one of 1 MB 100 s."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}
    long = io.BytesIO()
    fastavro.schemaless_writer(long, {"type": "bytes"}, b"\x7f" * 1_000_000)
    values = (b"\x02a" + long.getvalue(), b"\x02a\x04" + (701).to_bytes(2))
    events = read(record(("id", "string"), ("score", decimal)), *values)
    assert "a decimal may have at most 256 bytes, got 1,000,000" in events[0].reason
    assert events[1].score == float(Decimal("0.701"))


def test_a_value_that_is_too_large_is_not_decoded() -> None:
    schema = record(*SCORE, ("more", {"type": "array", "items": record(("x", "boolean"), name="B")}))
    count = io.BytesIO()
    fastavro.schemaless_writer(count, {"type": "bytes"}, bytes(1 << 20))  # as many items, of one byte
    large, small = read(schema, EVENT + count.getvalue() + b"\0", EVENT + b"\x04\0\1\0")
    assert "it may have at most 1,048,576 bytes, got 1,048," in large.reason
    assert small.score == 0.0

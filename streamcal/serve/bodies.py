"""Contents of a request's body: events as JSON, JSON lines or CloudEvents; tensors of the V2 protocol."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from streamcal.events.columns import Columns
from streamcal.serve.http_problems import Problem, RefusedError

__all__ = [
    "CLOUD_EVENT",
    "CLOUD_EVENTS",
    "JSON",
    "JSON_LINES",
    "CloudEvent",
    "InferRequest",
    "InferResponse",
    "Tensor",
    "content_type",
    "inputs_of",
    "outputs",
    "read",
    "tensors",
]

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"
CLOUD_EVENT: Final = "application/cloudevents+json"
CLOUD_EVENTS: Final = "application/cloudevents-batch+json"

MOST_LINES: Final = 10_000
"""Most events of one request."""

_BATCHES: Final = (JSON_LINES, "application/jsonl", "application/jsonlines")

T = TypeVar("T")
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class _Attributes(msgspec.Struct, kw_only=True):
    """Attributes of a CloudEvent, without its data."""

    specversion: Literal["1.0"]
    id: _Text
    source: _Text
    type: _Text
    time: str | None = None


class CloudEvent(_Attributes, kw_only=True):
    """A CloudEvent in structured mode; the event is its data."""

    data: msgspec.Raw


class Tensor(msgspec.Struct):
    """A tensor of the V2 inference protocol, as JSON."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any]


class InferRequest(msgspec.Struct):
    """A request of the V2 inference protocol."""

    inputs: list[Tensor]
    id: str | None = None


class InferResponse(msgspec.Struct, omit_defaults=True):
    """An answer of the V2 inference protocol."""

    model_name: str
    outputs: list[Tensor]
    id: str | None = None
    """Id of the request, if it has one."""


_decode_event: Final = msgspec.json.Decoder(CloudEvent).decode
_decode_events: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_infer: Final = msgspec.json.Decoder(InferRequest).decode
_INPUTS: Final = {"id": ("BYTES",), "time": ("FP64",)}
_SCORES: Final = ("FP32", "FP64")
_OF_SEGMENTS: Final = ("BYTES", "BOOL", "INT32", "INT64", "FP64")


def content_type(headers: Mapping[str, str]) -> str:
    """Return the media type of a request, in small letters and without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def read(headers: Mapping[str, str], body: bytes, columns: Columns) -> tuple[Sequence[bytes | Problem], bool]:
    """Return the events of a request, each as JSON, and whether it is a batch, answered line by line.

    An event of a batch that is no CloudEvent is a problem in its place.

    Parameters
    ----------
    headers
        by name, in small letters.

    Raises
    ------
    RefusedError
        if it is none of the types that are taken, or holds no event.
    """
    kind = content_type(headers)
    if "ce-specversion" in headers and kind not in (CLOUD_EVENT, CLOUD_EVENTS):
        if kind != JSON:
            raise RefusedError(
                415, f"the data of a CloudEvent must be {JSON}, got Content-Type {kind[:100]!r}"
            )
        given = {name.removeprefix("ce-"): text for name, text in headers.items() if name.startswith("ce-")}
        try:
            attributes = msgspec.convert(given, _Attributes)
        except ValueError as error:
            raise RefusedError(400, f"the ce- headers are not those of a CloudEvent: {error}") from None
        return [_completed(attributes, body, columns)], False
    if kind == JSON:
        return [body], False
    if kind in _BATCHES:
        return _checked(body.removesuffix(b"\n").split(b"\n") if body.strip() else []), True
    if kind == CLOUD_EVENT:
        return [_in_cloud_event(body, columns)], False
    if kind == CLOUD_EVENTS:
        events = _checked(_decoded(_decode_events, body, "an array of CloudEvents"))
        return [_in_cloud_event_of_many(event, columns) for event in events], True
    taken = ", ".join((JSON, *_BATCHES, CLOUD_EVENT, CLOUD_EVENTS))
    raise RefusedError(415, f"Content-Type must be one of {taken}, got {kind[:100] or 'none'!r}")


def _checked(lines: list[T]) -> list[T]:
    if not lines:
        raise RefusedError(400, "the body holds no event")
    if len(lines) > MOST_LINES:
        raise RefusedError(
            413, f"the body holds {len(lines):,} events, at most {MOST_LINES:,} may be sent at once"
        )
    return lines


def _in_cloud_event(text: bytes | msgspec.Raw, columns: Columns) -> bytes:
    event = _decoded(_decode_event, text, "a CloudEvent")
    return _completed(event, event.data, columns)


def _in_cloud_event_of_many(text: msgspec.Raw, columns: Columns) -> bytes | Problem:
    try:
        return _in_cloud_event(text, columns)
    except RefusedError as error:
        return error.problem


def _decoded(decode: Callable[[bytes | msgspec.Raw], T], body: bytes | msgspec.Raw, what: str) -> T:
    """Return what a body, or an event in it, holds; a value at fault is named by its place in the body."""
    try:
        return decode(body)
    except (ValueError, RecursionError) as error:
        place = re.search(r" - at `\$(\S+)`$", str(error))
        pointer = "#" + re.sub(r"[.\[]", "/", place[1]).replace("]", "") if place else "#"
        raise RefusedError(400, f"the body is not {what}: {error}"[:1000], pointer=pointer) from None


def _completed(attributes: _Attributes, data: bytes | msgspec.Raw, columns: Columns) -> bytes:
    """Return an event, with the id and the time of its CloudEvent if it has none of its own."""
    try:
        fields = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return bytes(data)  # the run says why it is refused
    if not isinstance(fields, dict):
        return bytes(data)
    fields.setdefault(columns.id, attributes.id)
    if attributes.time is not None:
        fields.setdefault(columns.time, attributes.time)
    return msgspec.json.encode(fields)


def inputs_of(columns: Columns) -> tuple[str, tuple[str, ...]]:
    """Return the input of the V2 protocol that has the scores, and those that are carried along."""
    return ("scores", columns.keep) if columns.classes else ("score", columns.carried)


def tensors(body: bytes, key: str | None, columns: Columns) -> tuple[InferRequest, list[bytes]]:
    """Return a request of the V2 protocol, and its predictions: one for each score, or row of scores.

    Raises
    ------
    RefusedError
        if it is no such request.
    """
    request = _decoded(_decode_infer, body, "an inference request")
    scores, carried = inputs_of(columns)
    inputs = {**dict.fromkeys(carried, _OF_SEGMENTS), scores: _SCORES, **_INPUTS}
    found: dict[str, list[Any]] = {}
    for index, tensor in enumerate(request.inputs):
        if len(tensor.shape) == 2 and all(
            isinstance(row, list) and len(row) == tensor.shape[1] for row in tensor.data
        ):
            tensor.data = [value for row in tensor.data for value in row]  # flat, as most clients send it
        name, size = tensor.name, len(tensor.data)
        types, width = inputs.get(name, ()), len(columns.classes) if name == scores else 0
        shape = [size // width, width] if width else [size]
        for field, right, words in (
            ("name", types and name not in found, f"inputs are {', '.join(inputs)}, each once"),
            ("datatype", tensor.datatype in types, f"the datatype of {name} must be {' or '.join(types)}"),
            (
                "shape",
                tensor.shape == shape if width else tensor.shape in (shape, [size, 1]),
                f"the shape of {name} must be {shape}{'' if width else f' or [{size}, 1]'}, as it has {size}"
                " values",
            ),
            (
                "data",
                size % (width or 1) == 0,
                f"{name} must be rows of {width} values, one after the other",
            ),
        ):
            if not right:
                detail = f"{words}, got {getattr(tensor, field)!r:.100}"
                raise RefusedError(400, detail, pointer=f"#/inputs/{index}/{field}")
        rows = range(0, size, width or 1)
        found[name] = [tensor.data[at : at + width] for at in rows] if width else tensor.data
    for name in (scores, "id"):
        if name not in found:
            raise RefusedError(400, f"there is no input {name}", pointer="#/inputs")
    if len({len(values) for values in found.values()}) > 1:
        sizes = ", ".join(f"{name} {len(values)}" for name, values in found.items())
        raise RefusedError(400, f"inputs must have as many values each, got {sizes}", pointer="#/inputs")
    _checked(found[scores])
    named: dict[str, str] = {role: name for role, name in columns.names.items() if role in _INPUTS}
    named[scores] = columns.names["score"]
    names = [named.get(name, name) for name in found]
    more = {} if key is None else {columns.key: key}
    events = zip(*found.values(), strict=True)
    return request, [msgspec.json.encode({**dict(zip(names, row, strict=True)), **more}) for row in events]


def outputs(results: Sequence[Any], classes: Sequence[str]) -> list[Tensor]:
    """Return the tensors of an answer of the V2 protocol."""
    count = len(results)
    made = Tensor("probability", "FP64", [count], [])
    if classes:
        made = Tensor("probabilities", "FP64", [count, len(classes)], [])
    for each in results:
        made.data += each.probabilities.values() if classes else (each.probability,)
    return [made, Tensor("map_version", "INT64", [count], [each.map_version for each in results])]

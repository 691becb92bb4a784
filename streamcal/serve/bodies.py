"""Contents of a request's body: events as JSON, JSON lines or CloudEvents; tensors of the V2 protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from streamcal.events.columns import Columns
from streamcal.serve.http_problems import RefusedError

__all__ = [
    "BATCHES",
    "CLOUD_EVENT",
    "CLOUD_EVENTS",
    "JSON",
    "JSON_LINES",
    "Body",
    "InferRequest",
    "read",
    "tensors",
]

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"
BATCHES: Final = (JSON_LINES, "application/jsonl", "application/jsonlines")
CLOUD_EVENT: Final = "application/cloudevents+json"
CLOUD_EVENTS: Final = "application/cloudevents-batch+json"

MOST_LINES: Final = 10_000
"""Events of one request."""

_TYPES: Final = (JSON, *BATCHES, CLOUD_EVENT, CLOUD_EVENTS)
_REQUIRED: Final = ("id", "source", "type")


class Body(NamedTuple):
    """The events of a request."""

    lines: list[bytes]
    many: bool
    """Whether it is a batch, which is answered line by line."""


def read(headers: Mapping[str, str], body: bytes, columns: Columns) -> Body:
    """Return the events of a request.

    Parameters
    ----------
    headers
        by name, in small letters.

    Raises
    ------
    RefusedError
        if it is none of the types that are taken, or holds no event.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if "ce-specversion" in headers and kind not in (CLOUD_EVENT, CLOUD_EVENTS):
        return Body([_from_headers(headers, kind, body, columns)], many=False)
    if kind == JSON:
        return Body([body], many=False)
    if kind in BATCHES:
        return Body(_checked(body.removesuffix(b"\n").split(b"\n") if body.strip() else []), many=True)
    if kind == CLOUD_EVENT:
        return Body([_from_envelope(_decoded(body), "#", columns)], many=False)
    if kind == CLOUD_EVENTS:
        found = _decoded(body)
        if not isinstance(found, list):
            raise RefusedError(400, f"a body of {CLOUD_EVENTS} must be an array of CloudEvents", pointer="#")
        each = _checked(found)
        return Body([_from_envelope(one, f"#/{index}", columns) for index, one in enumerate(each)], many=True)
    raise RefusedError(415, f"Content-Type must be one of {', '.join(_TYPES)}, got {kind[:100] or 'none'!r}")


def _checked(lines: list[Any]) -> list[Any]:
    if not lines:
        raise RefusedError(400, "the body holds no event")
    if len(lines) > MOST_LINES:
        raise RefusedError(
            413, f"the body holds {len(lines):,} events, at most {MOST_LINES:,} may be sent at once"
        )
    return lines


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is not JSON: {error}"[:1000], pointer="#") from None


def _from_headers(headers: Mapping[str, str], kind: str, body: bytes, columns: Columns) -> bytes:
    """Return the event in a CloudEvent in binary mode."""
    if kind != JSON:
        raise RefusedError(415, f"the data of a CloudEvent must be {JSON}, got Content-Type {kind[:100]!r}")
    if headers["ce-specversion"] != "1.0":
        raise RefusedError(400, f"ce-specversion must be '1.0', got {headers['ce-specversion'][:100]!r}")
    for name in _REQUIRED:
        if not headers.get(f"ce-{name}"):
            raise RefusedError(400, f"a CloudEvent needs the header ce-{name}")
    return _completed(body, headers["ce-id"], headers.get("ce-time"), columns)


def _from_envelope(found: Any, pointer: str, columns: Columns) -> bytes:
    """Return the event in a CloudEvent in structured mode."""
    if not isinstance(found, dict):
        raise RefusedError(400, "a CloudEvent must be a JSON object", pointer=pointer)
    if found.get("specversion") != "1.0":
        got = repr(found.get("specversion"))[:100]
        raise RefusedError(400, f"specversion must be '1.0', got {got}", pointer=f"{pointer}/specversion")
    for name in _REQUIRED:
        if not isinstance(found.get(name), str) or not found[name]:
            raise RefusedError(400, f"a CloudEvent needs {name}, a string", pointer=f"{pointer}/{name}")
    if not isinstance(found.get("time"), str | None):
        raise RefusedError(400, "time must be a string", pointer=f"{pointer}/time")
    if "data" not in found:
        what = "data_base64 is not taken" if "data_base64" in found else "there is none"
        raise RefusedError(400, f"the event must be in data, as JSON: {what}", pointer=f"{pointer}/data")
    return _completed(msgspec.json.encode(found["data"]), found["id"], found.get("time"), columns)


def _completed(data: bytes, id_: str, time: str | None, columns: Columns) -> bytes:
    """Return an event, with the id and the time of its CloudEvent if it has none of its own."""
    try:
        fields = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return data  # the run says why it is refused
    if not isinstance(fields, dict):
        return data
    fields.setdefault(columns.id, id_)
    if time is not None:
        fields.setdefault(columns.time, time)
    return msgspec.json.encode(fields)


class Tensor(msgspec.Struct):
    """A tensor of the V2 inference protocol, as JSON."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any]


class InferRequest(msgspec.Struct):
    """A request of the V2 inference protocol."""

    inputs: list[Tensor]
    id: str | None = None


_decode_infer: Final = msgspec.json.Decoder(InferRequest).decode
_INPUTS: Final = {
    "score": ("FP32", "FP64"),
    "id": ("BYTES",),
    "time": ("FP64",),
}


def tensors(body: bytes, key: str | None, columns: Columns) -> tuple[InferRequest, list[bytes]]:
    """Return a request of the V2 protocol, and its predictions: one for each score.

    Raises
    ------
    RefusedError
        if it is no such request.
    """
    try:
        request = _decode_infer(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"not an inference request: {error}"[:1000]) from None
    found: dict[str, list[Any]] = {}
    for index, tensor in enumerate(request.inputs):
        place = f"#/inputs/{index}"
        types = _INPUTS.get(tensor.name)
        if types is None or tensor.name in found:
            known = ", ".join(_INPUTS)
            raise RefusedError(
                400, f"inputs are {known}, each once, got {tensor.name[:100]!r}", pointer=f"{place}/name"
            )
        if tensor.datatype not in types:
            raise RefusedError(
                400,
                f"the datatype of {tensor.name} must be {' or '.join(types)}, got {tensor.datatype[:100]!r}",
                pointer=f"{place}/datatype",
            )
        size = len(tensor.data)
        if tensor.shape not in ([size], [size, 1]):
            raise RefusedError(
                400,
                f"the shape of {tensor.name} must be [{size}] or [{size}, 1], as it has {size} values,"
                f" got {str(tensor.shape)[:100]}",
                pointer=f"{place}/shape",
            )
        found[tensor.name] = tensor.data
    for name in ("score", "id"):
        if name not in found:
            raise RefusedError(400, f"there is no input {name}", pointer="#/inputs")
    if len({len(values) for values in found.values()}) > 1:
        sizes = ", ".join(f"{name} {len(values)}" for name, values in found.items())
        raise RefusedError(400, f"inputs must have as many values each, got {sizes}", pointer="#/inputs")
    _checked(found["score"])
    names = [getattr(columns, name) for name in found]
    more = {} if key is None else {columns.key: key}
    rows = zip(*found.values(), strict=True)
    return request, [msgspec.json.encode({**dict(zip(names, row, strict=True)), **more}) for row in rows]

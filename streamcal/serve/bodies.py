"""Contents of a request's body: events as JSON or JSON lines; tensors of the V2 protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from streamcal.events.codec import check_repeated
from streamcal.events.columns import Columns
from streamcal.quality.decisions import Decision
from streamcal.run.added import Added
from streamcal.run.kinds import Kind
from streamcal.serve.http_problems import RefusedError
from streamcal.serve.reading import check_values, count_values

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"

MOST_LINES: Final = 10_000
"""Most events of one request."""

MOST_EVENT_BYTES: Final = 1 << 20
"""Most bytes of an event."""

MOST_EVENT_VALUES: Final = 20_000
"""Most values of an event, counted as those of a body."""

_DATATYPES: Final[dict[Any, str]] = {Decision: "BYTES", bool: "BOOL", float: "FP64"}
_BATCHES: Final = (JSON_LINES, "application/jsonl", "application/jsonlines")


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


_decode_infer: Final = msgspec.json.Decoder(InferRequest).decode
_INPUTS: Final = {"id": ("BYTES",), "time": ("FP64",)}
_SCORES: Final = ("FP32", "FP64")
_OF_SEGMENTS: Final = ("BYTES", "BOOL", "INT32", "INT64", "FP64")


def content_type(headers: Mapping[str, str]) -> str:
    """Return the media type of a request, in small letters and without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def read(headers: Mapping[str, str], body: bytearray) -> tuple[list[bytes], bool]:
    """Return the events of a request, each as JSON, and whether it is a batch, answered line by line.

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
    if kind == JSON:
        _check_event(body)
        return [bytes(body)], False
    if kind in _BATCHES:
        count = body.count(b"\n") + (not body.endswith(b"\n"))
        _check_events(0 if not body or body.isspace() else count)
        lines = bytes(body).removesuffix(b"\n").split(b"\n")
        for line in lines:
            _check_event(line)
        return lines, True
    taken = ", ".join((JSON, *_BATCHES))
    raise RefusedError(415, f"Content-Type must be one of {taken}, got {kind[:100] or 'none'!r}")


def _check_events(count: int) -> None:
    if not count:
        raise RefusedError(400, "the body holds no event")
    if count > MOST_LINES:
        raise RefusedError(413, f"the body holds {count:,} events, at most {MOST_LINES:,} may be sent")


def _check_event(text: bytes | bytearray) -> None:
    if len(text) > MOST_EVENT_BYTES:
        raise RefusedError(413, f"an event may have {MOST_EVENT_BYTES:,} bytes, this one has {len(text):,}")
    if len(text) > MOST_EVENT_VALUES:
        check_values("an event", count_values(text), MOST_EVENT_VALUES)


def tensors(
    headers: Mapping[str, str], body: bytearray, key: str | None, columns: Columns, kind: Kind
) -> tuple[InferRequest, list[bytes]]:
    """Return a request of the V2 protocol, and its predictions: one for each score, or row of scores.

    Raises
    ------
    RefusedError
        if it is no such request.
    """
    if "inference-header-content-length" in headers:
        raise RefusedError(415, "tensors must be JSON: the binary extension is not supported")
    if (found_type := content_type(headers)) != JSON:
        raise RefusedError(415, f"Content-Type must be {JSON}, got {found_type[:100] or 'none'!r}")
    try:
        request = _decode_infer(body)
        check_repeated(bytes(body))
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is not an inference request: {error}"[:1000]) from None
    scores = kind.score
    inputs = {**dict.fromkeys(columns.passed, _OF_SEGMENTS), scores: _SCORES, **_INPUTS}
    found: dict[str, list[Any]] = {}
    for index, tensor in enumerate(request.inputs):
        if len(tensor.shape) == 2 and all(
            isinstance(row, list) and len(row) == tensor.shape[1] for row in tensor.data
        ):
            tensor.data = [value for row in tensor.data for value in row]  # flat, as most clients send it
        name, size = tensor.name, len(tensor.data)
        types, width = inputs.get(name, ()), sum(kind.shape) if name == scores else 0
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
    _check_events(len(found[scores]))
    named: dict[str, str] = {role: name for role, name in columns.names.items() if role in _INPUTS}
    named[scores] = columns.names["score"]
    names = [named.get(name, name) for name in found]
    more = {} if key is None else {columns.key: key}
    events = zip(*found.values(), strict=True)
    return request, [msgspec.json.encode({**dict(zip(names, row, strict=True)), **more}) for row in events]


def added_tensors(added: Sequence[Added]) -> dict[str, str]:
    """Return the datatype of each tensor that an answer has beyond probabilities and versions, by name."""
    fields = [field for each in added for field in each.fields]
    return {field.name: _DATATYPES[field.type] for field in fields if field.type in _DATATYPES}


def outputs(results: Sequence[Any], kind: Kind, added: Mapping[str, str]) -> list[Tensor]:
    """Return the tensors of an answer of the V2 protocol, with those of `added_tensors`."""
    count, versions = len(results), [each.map_version for each in results]
    made = [number for each in results for number in kind.numbers(getattr(each, kind.probability))]
    return [
        Tensor(kind.probability, "FP64", [count, *kind.shape], made),
        Tensor("map_version", "INT64", [count], versions),
        *(Tensor(name, of, [count], [getattr(each, name) for each in results]) for name, of in added.items()),
    ]

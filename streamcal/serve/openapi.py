"""The description of the interface, with examples: OpenAPI 3.1.

The schemas of answers and of what wraps events are those of the structs; events have the columns of the run.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

import msgspec

from streamcal.engine.emissions import Recalibrated
from streamcal.run.columns import Columns
from streamcal.run.status import Alarm
from streamcal.serve.bodies import (
    CLOUD_EVENT,
    CLOUD_EVENTS,
    JSON,
    JSON_LINES,
    CloudEvent,
    InferRequest,
    InferResponse,
)
from streamcal.serve.http_problems import PROBLEM_TYPE, Problem
from streamcal.serve.outcomes import LabelAnswer
from streamcal.serve.queries import CertificateAnswer
from streamcal.sketch.weighing import HEAVIEST, LIGHTEST

__all__ = ["document"]

_STRUCTS: Final = (
    Recalibrated,
    LabelAnswer,
    Problem,
    CloudEvent,
    InferRequest,
    InferResponse,
    Alarm,
    CertificateAnswer,
)
_REF: Final = "#/components/schemas/{name}"
_NAME: Final = {"type": "string", "maxLength": 512}
_ID: Final = {**_NAME, "minLength": 1}
_KEY: Final = {"name": "key", "schema": _NAME}
_KEY_PARAMETERS: Final = {
    "/v1": {**_KEY, "in": "query", "description": "Without it: events without a key."},
    "/v2": {**_KEY, "in": "path", "required": True, "description": "_ for events without a key."},
}
_TO_READ: Final[dict[str, tuple[str, str | None, tuple[int, ...]]]] = {
    "/v1/map": ("The map that is served, of a key", "Map", (401, 404, 421, 503)),
    "/v1/certificate": (
        "What may be claimed of it; worked out anew after 5 seconds",
        "CertificateAnswer",
        (401, 404, 421, 503),
    ),
    "/v1/alarms": ("The assumptions that were refuted, and what to do", "Alarms", (401, 404, 421, 503)),
    "/healthz": ("Whether the process answers", None, ()),
    "/readyz": ("Whether it takes events", None, (503,)),
    "/metrics": ("The metrics of the run, for Prometheus", None, (401, 421, 503)),
    "/openapi.json": ("This description", None, (401, 421)),
    "/v2": ("V2 inference protocol: the server", None, (401, 421)),
    "/v2/health/live": ("V2 inference protocol: alive", None, ()),
    "/v2/health/ready": ("V2 inference protocol: ready", None, (503,)),
    "/v2/models/{key}": ("V2 inference protocol: a key as a model", None, (401, 421, 503)),
    "/v2/models/{key}/ready": ("V2 inference protocol: ready", None, (401, 421, 503)),
}
"""Paths of what can be read: a summary, the schema of the answer, the problems. Without 401: open to all."""


def document(columns: Columns) -> dict[str, Any]:
    """Return the description, for the names that events have here."""
    named = columns.of("labels")
    prediction = {columns.id: "a1", columns.score: 0.93, columns.time: "2026-03-01T12:00:00Z"}
    label = {named.id: "a1", named.label: 1, named.time: "2026-03-02T08:30:00Z"}
    answer = Recalibrated("a1", 0.93, 0.81, 7, (1.0, 1.0), None, 1772366400.0)
    scores = [_tensor("score", "FP64", [0.93, 0.2]), _tensor("id", "BYTES", ["a1", "a2"])]
    found = [_tensor("probability", "FP64", [0.81, 0.3]), _tensor("map_version", "INT64", [7, 7])]
    infer = _post(
        "infer",
        "V2 inference protocol: probabilities for a tensor of scores",
        _content(JSON, _ref("InferRequest"), {"inputs": scores}),
        _content(JSON, _ref("InferResponse"), {"model_name": "_", "outputs": found}),
        (400, 401, 408, 409, 413, 415, 421, 422, 429, 503),
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "streamcal",
            "version": version("streamcal-engine"),
            "description": "Recalibrates probabilities while labels arrive. See docs/serve.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}, {}],
        "paths": {
            "/v1/predictions": _events("prediction", prediction, answer, "Recalibrate predictions"),
            "/v1/labels": _events("label", label, LabelAnswer("a1", "joined"), "Give labels"),
            **{path: _get(path, *row) for path, row in _TO_READ.items()},
            "/v2/models/{key}/infer": {"parameters": [_KEY_PARAMETERS["/v2"]], "post": infer},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                **_event_schemas(columns),
                "Map": {"type": "object", "description": "docs/recalibration-map.schema.json"},
                "Alarms": {"type": "array", "items": _ref("Alarm")},
                **msgspec.json.schema_components(_STRUCTS, ref_template=_REF)[1],
            },
            "responses": {
                "Problem": {
                    "description": "Not taken; the problem names the field at fault",
                    "content": _content(PROBLEM_TYPE, _ref("Problem")),
                },
                "Busy": {
                    "description": "Send the same request again",
                    "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}},
                    "content": _content(PROBLEM_TYPE, _ref("Problem")),
                },
            },
        },
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _REF.format(name=name)}


def _content(kind: str, schema: Any, example: Any = None) -> dict[str, Any]:
    examples = {} if example is None else {"examples": {"one": {"value": msgspec.to_builtins(example)}}}
    return {kind: {"schema": schema, **examples}}


def _responses(description: str, content: dict[str, Any], problems: tuple[int, ...]) -> dict[str, Any]:
    return {
        "200": {"description": description, "content": content},
        **{
            str(status): {"$ref": f"#/components/responses/{'Busy' if status in (429, 503) else 'Problem'}"}
            for status in problems
        },
    }


def _get(path: str, summary: str, schema: str | None, problems: tuple[int, ...]) -> dict[str, Any]:
    kind = "text/plain" if path == "/metrics" else JSON
    content = _content(kind, _ref(schema) if schema else {"type": "object" if kind == JSON else "string"})
    with_key = "{key}" in path or 404 in problems
    return {
        "get": {"summary": summary, "responses": _responses("OK", content, problems)}
        | ({} if 401 in problems else {"security": [{}]}),
        "parameters": [_KEY_PARAMETERS[path[:3]]] if with_key else [],
    }


def _post(name: str, summary: str, body: Any, answer: Any, problems: tuple[int, ...]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": body},
        "responses": _responses("Taken, for good", answer, problems),
    }


def _events(what: str, event: Any, answer: Recalibrated | LabelAnswer, summary: str) -> dict[str, Any]:
    cloud = {
        "specversion": "1.0",
        "id": "a1",
        "source": "/models/churn",
        "type": f"streamcal.{what}",
        "data": event,
    }
    lines = _content(JSON_LINES, {"type": "string"})
    operation = _post(
        f"{what}s",
        summary,
        {
            **_content(JSON, _ref(what.capitalize()), event),
            **lines,
            **_content(CLOUD_EVENT, _ref("CloudEvent"), cloud),
            **_content(CLOUD_EVENTS, {"type": "array", "items": _ref("CloudEvent")}, [cloud]),
        },
        _content(JSON, _ref(type(answer).__name__), answer) | lines,
        (400, 401, 408, 409, 410, 413, 415, 421, 422, 429, 503),
    )
    description = (
        "One event, or JSON lines, which are answered line by line: the status is then 200, and a line that"
        " was refused is answered by its problem. Sent again, an event is answered as before, and counted"
        " once."
    )
    return {"post": {**operation, "description": description}}


def _tensor(name: str, datatype: str, data: list[Any]) -> dict[str, Any]:
    return {"name": name, "shape": [len(data)], "datatype": datatype, "data": data}


def _event_schemas(columns: Columns) -> dict[str, Any]:
    named = columns.of("labels")
    label = {"enum": [0, 1]} if columns.positive is None else {}
    time = {
        "type": ["number", "string", "null"],
        "description": "Event time: seconds since the epoch, or ISO 8601.",
    }
    return {
        "Prediction": {
            "type": "object",
            "required": [columns.score],
            "properties": {
                columns.id: _ID,
                columns.score: {"type": "number", "minimum": 0, "maximum": 1},
                columns.label: label,
                columns.time: time,
                columns.key: {**_NAME, "type": ["string", "null"]},
                columns.domain: {"enum": ["source", "target", None]},
                **_weights(columns),
            },
            "description": "The id may be missing only where the label is with it.",
        },
        "Label": {
            "type": "object",
            "required": [named.id, named.label],
            "properties": {named.id: _ID, named.label: label, named.time: time, **_weights(named)},
        },
    }


def _weights(columns: Columns) -> dict[str, Any]:
    """Return the fields that say what a label counts for, if any are named."""
    limits = {"weight": (LIGHTEST, HEAVIEST), "propensity": (1.0 / HEAVIEST, 1.0)}
    return {
        columns.names[role]: {"type": ["number", "null"], "minimum": least, "maximum": most}
        for role, (least, most) in limits.items()
        if role in columns.names
    }

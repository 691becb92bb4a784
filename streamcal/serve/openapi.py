"""The description of the interface, with examples: OpenAPI 3.1.

The schemas of answers and of what wraps events are those of the structs; events have the columns of the run.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

import msgspec

from streamcal.events.columns import Columns
from streamcal.run.config import RunConfig
from streamcal.run.kinds import kind_of
from streamcal.run.rows import AlarmRow
from streamcal.serve.bodies import JSON, JSON_LINES
from streamcal.serve.http_problems import PROBLEM_TYPE, Problem
from streamcal.serve.queries import CertificateAnswer
from streamcal.serve.served_pipeline import LabelAnswer
from streamcal.sketch.weighing import HEAVIEST, LIGHTEST

_STRUCTS: Final = (LabelAnswer, Problem, AlarmRow, CertificateAnswer)
_REF: Final = "#/components/schemas/{name}"
_NAME: Final = {"type": "string", "maxLength": 512}
_ID: Final = {**_NAME, "minLength": 1}
_KEY: Final = {
    "name": "key",
    "schema": _NAME,
    "in": "query",
    "description": "Without it: events without a key.",
}
_TO_READ: Final[dict[str, tuple[str, str | None]]] = {
    "/v1/map": ("The map that is served, of a key", "Map"),
    "/v1/certificate": ("What may be claimed of it; worked out anew after 5 seconds", "CertificateAnswer"),
    "/v1/alarms": (
        "The assumptions that were refuted, also that forecasts are calibrated, and what to do",
        "Alarms",
    ),
    "/healthz": ("Whether the process answers", None),
    "/readyz": ("Whether it takes events", None),
    "/metrics": ("The metrics of the run, for Prometheus", None),
    "/openapi.json": ("This description", None),
}
"""Paths of what can be read: a summary, and the schema of the answer."""
OPEN: Final = frozenset({"/healthz", "/readyz"})
"""Paths for which no token is asked."""


def document(options: RunConfig) -> dict[str, Any]:
    """Return the description, for the names that events have here, and what rows have."""
    columns, added = options.columns, options.added()
    named = columns.of("labels")
    kind = kind_of(columns.classes)
    row = kind.row_with(added)
    answer, score = row(*msgspec.structs.astuple(kind.example)), getattr(kind.example, kind.score)
    prediction = {columns.id: "a1", columns.names["score"]: score, columns.time: "2026-03-01T12:00:00Z"}
    label = {named.id: "a1", named.label: columns.label_values[-1], named.time: "2026-03-02T08:30:00Z"}
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
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                **_event_schemas(columns, kind.schema),
                "Map": {
                    "type": "object",
                    "description": "docs/recalibration-map.schema.json; multiclass-map of many classes",
                },
                "Alarms": {"type": "array", "items": _ref("AlarmRow")},
                **msgspec.json.schema_components((row, *_STRUCTS), ref_template=_REF)[1],
            },
            "responses": {
                "Problem": {
                    "description": "Not taken; docs/serve.md lists the statuses",
                    "headers": {
                        "Retry-After": {
                            "schema": {"type": "integer"},
                            "description": "With 429 and 503: seconds until the request may be sent again.",
                        }
                    },
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


def _get(path: str, summary: str, schema: str | None) -> dict[str, Any]:
    kind = "text/plain" if path == "/metrics" else JSON
    content = _content(kind, _ref(schema) if schema else {"type": "object" if kind == JSON else "string"})
    parameters = [_KEY] if schema else []
    operation = {"summary": summary, "parameters": parameters, "responses": _responses("OK", content)}
    return {"get": {**operation, **({"security": [{}]} if path in OPEN else {})}}


def _responses(description: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "200": {"description": description, "content": content},
        "default": {"$ref": "#/components/responses/Problem"},
    }


def _events(what: str, event: Any, answer: msgspec.Struct, summary: str) -> dict[str, Any]:
    lines = _content(JSON_LINES, {"type": "string"})
    operation = {
        "operationId": f"{what}s",
        "summary": summary,
        "description": (
            "One event, or JSON lines, which are answered line by line: the status is then 200, and a line"
            " that was refused is answered by its problem. Sent again, an event is answered as before, and"
            " counted once."
        ),
        "requestBody": {"required": True, "content": _content(JSON, _ref(what.capitalize()), event) | lines},
        "responses": _responses(
            "Taken, for good", _content(JSON, _ref(type(answer).__name__), answer) | lines
        ),
    }
    return {"post": operation}


def _event_schemas(columns: Columns, score: dict[str, Any]) -> dict[str, Any]:
    named = columns.of("labels")
    label: dict[str, Any] = {"enum": [*columns.label_values]} if columns.positive is None else {}
    time = {
        "type": ["number", "string", "null"],
        "description": "Event time: seconds since the epoch, or ISO 8601.",
    }
    return {
        "Prediction": {
            "type": "object",
            "required": [columns.names["score"]],
            "properties": {
                columns.id: _ID,
                columns.names["score"]: score,
                columns.label: label,
                columns.time: time,
                columns.key: {**_NAME, "type": ["string", "null"]},
                columns.domain: {"enum": ["source", "target", None]},
                **{name: {"type": ["string", "number", "boolean", "null"]} for name in columns.passed},
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

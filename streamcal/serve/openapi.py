"""The description of the interface, with examples: OpenAPI 3.1."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

import msgspec

from streamcal.engine.emissions import Recalibrated
from streamcal.events.columns import Columns
from streamcal.monitor.status import Alarm
from streamcal.serve.bodies import CLOUD_EVENT, CLOUD_EVENTS, JSON, JSON_LINES, InferRequest
from streamcal.serve.http_problems import PROBLEM_TYPE, Problem
from streamcal.serve.outcomes import LabelAnswer
from streamcal.sketch.weighing import HEAVIEST, LIGHTEST

__all__ = ["document"]

_STRUCTS: Final = (Recalibrated, LabelAnswer, Problem, InferRequest, Alarm)
_REF: Final = "#/components/schemas/{name}"
_NAME: Final = {"type": "string", "maxLength": 512}
_PROBABILITY: Final = {"type": "number", "minimum": 0, "maximum": 1}
_TIME: Final = {
    "type": ["number", "string", "null"],
    "description": "Event time: seconds since the epoch, or ISO 8601.",
}


def document(columns: Columns) -> dict[str, Any]:
    """Return the description, for the names that events have here."""
    event = {columns.id: "a1", columns.score: 0.93, columns.time: "2026-03-01T12:00:00Z"}
    named = columns.of("labels")
    label = {named.id: "a1", named.label: 1, named.time: "2026-03-02T08:30:00Z"}
    answer = {
        "id": "a1",
        "score": 0.93,
        "probability": 0.81,
        "map_version": 7,
        "weights": [1.0, 1.0],
        "key": None,
        "time": 1772366400.0,
    }
    paths: dict[str, Any] = {
        "/v1/predictions": _events("prediction", "Recalibrated", event, answer, "Recalibrate predictions"),
        "/v1/labels": _events(
            "label", "LabelAnswer", label, {"id": "a1", "outcome": "joined"}, "Give labels"
        ),
        "/v1/map": _known("The map that is served, of a key", "Map"),
        "/v1/certificate": _known(
            "What may be claimed of it; worked out anew after 5 seconds", "Certificate"
        ),
        "/v1/alarms": _known("The assumptions that were refuted, and what to do", "Alarms"),
        "/healthz": _plain("Whether the process answers", open_to_all=True),
        "/readyz": _plain("Whether it takes events", open_to_all=True, starting=True),
        "/metrics": _plain("The metrics of the run, for Prometheus", "text/plain", starting=True),
        "/openapi.json": _plain("This description"),
        "/v2": _plain("V2 inference protocol: the server"),
        "/v2/health/live": _plain("V2 inference protocol: alive", open_to_all=True),
        "/v2/health/ready": _plain("V2 inference protocol: ready", open_to_all=True, starting=True),
        "/v2/models/{key}": _model(_plain("V2 inference protocol: a key as a model", starting=True)),
        "/v2/models/{key}/ready": _model(_plain("V2 inference protocol: ready", starting=True)),
        "/v2/models/{key}/infer": _model(_infer()),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "streamcal",
            "version": version("streamcal-engine"),
            "description": "Recalibrates probabilities while labels arrive. See docs/serve.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(columns),
            "responses": {
                "Problem": {
                    "description": "Not taken; the problem names the field at fault",
                    "content": {PROBLEM_TYPE: {"schema": _ref("Problem")}},
                },
                "Busy": {
                    "description": "Send the same request again",
                    "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}},
                    "content": {PROBLEM_TYPE: {"schema": _ref("Problem")}},
                },
            },
        },
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _REF.format(name=name)}


def _problems(*statuses: int) -> dict[str, Any]:
    return {
        str(status): {"$ref": f"#/components/responses/{'Busy' if status in (429, 503) else 'Problem'}"}
        for status in statuses
    }


def _events(what: str, answered: str, event: Any, answer: Any, summary: str) -> dict[str, Any]:
    envelope = {"specversion": "1.0", "id": "a1", "source": "/models/churn", "type": f"streamcal.{what}"}
    cloud = {**envelope, "data": event}
    name = what.capitalize()
    return {
        "post": {
            "operationId": f"{what}s",
            "summary": summary,
            "description": (
                "One event, or JSON lines, which are answered line by line: the status is then 200, and a"
                " line that was refused is answered by its problem. Sent again, an event is answered as"
                " before, and counted once."
            ),
            "requestBody": {
                "required": True,
                "content": {
                    JSON: {"schema": _ref(name), "examples": {"one": {"value": event}}},
                    JSON_LINES: {"schema": {"type": "string"}},
                    CLOUD_EVENT: {"schema": _ref("CloudEvent"), "examples": {"one": {"value": cloud}}},
                    CLOUD_EVENTS: {
                        "schema": {"type": "array", "items": _ref("CloudEvent")},
                        "examples": {"one": {"value": [cloud]}},
                    },
                },
            },
            "responses": {
                "200": {
                    "description": "Taken, for good",
                    "content": {
                        JSON: {"schema": _ref(answered), "examples": {"one": {"value": answer}}},
                        JSON_LINES: {"schema": {"type": "string"}},
                    },
                },
                **_problems(400, 401, 408, 409, 410, 413, 415, 421, 422, 429, 503),
            },
        }
    }


def _known(summary: str, name: str) -> dict[str, Any]:
    key = {"name": "key", "in": "query", "schema": _NAME, "description": "Without it: events without a key."}
    made = _plain(summary, schema=_ref(name), starting=True)
    made["get"]["parameters"] = [key]
    made["get"]["responses"] |= _problems(404)
    return made


def _plain(
    summary: str, kind: str = JSON, schema: Any = None, *, open_to_all: bool = False, starting: bool = False
) -> dict[str, Any]:
    content = {kind: {"schema": schema or {"type": "string" if kind != JSON else "object"}}}
    made: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": content}},
    }
    if open_to_all:
        made["security"] = [{}]
    else:
        made["responses"] |= _problems(401, 421)
    if starting:
        made["responses"] |= _problems(503)
    return {"get": made}


def _model(path: dict[str, Any]) -> dict[str, Any]:
    key = {
        "name": "key",
        "in": "path",
        "required": True,
        "schema": {**_NAME, "minLength": 1},
        "description": "The key of the events; _ for events without a key.",
    }
    return {"parameters": [key], **path}


def _infer() -> dict[str, Any]:
    inputs = [
        {"name": "score", "shape": [2], "datatype": "FP64", "data": [0.93, 0.2]},
        {"name": "id", "shape": [2], "datatype": "BYTES", "data": ["a1", "a2"]},
    ]
    outputs = [
        {"name": "probability", "shape": [2], "datatype": "FP64", "data": [0.81, 0.3]},
        {"name": "map_version", "shape": [2], "datatype": "INT64", "data": [7, 7]},
    ]
    return {
        "post": {
            "operationId": "infer",
            "summary": "V2 inference protocol: probabilities for a tensor of scores",
            "requestBody": {
                "required": True,
                "content": {
                    JSON: {"schema": _ref("InferRequest"), "examples": {"two": {"value": {"inputs": inputs}}}}
                },
            },
            "responses": {
                "200": {
                    "description": "Taken, for good",
                    "content": {
                        JSON: {
                            "schema": {"type": "object", "required": ["model_name", "outputs"]},
                            "examples": {"two": {"value": {"model_name": "_", "outputs": outputs}}},
                        }
                    },
                },
                **_problems(400, 401, 408, 409, 413, 415, 421, 422, 429, 503),
            },
        }
    }


def _weights(columns: Columns) -> dict[str, Any]:
    """Return the fields that say what a label counts for, if any are named."""
    limits = {"weight": (LIGHTEST, HEAVIEST), "propensity": (1.0 / HEAVIEST, 1.0)}
    return {
        columns.names[role]: {"type": ["number", "null"], "minimum": least, "maximum": most}
        for role, (least, most) in limits.items()
        if role in columns.names
    }


def _schemas(columns: Columns) -> dict[str, Any]:
    id_, named = {**_NAME, "minLength": 1}, columns.of("labels")
    key = {"type": ["string", "null"], "maxLength": 512}
    label = {"enum": [0, 1]} if columns.positive is None else {}
    return {
        "Prediction": {
            "type": "object",
            "required": [columns.score],
            "properties": {
                columns.id: id_,
                columns.score: _PROBABILITY,
                columns.label: label,
                columns.time: _TIME,
                columns.key: key,
                columns.domain: {"enum": ["source", "target", None]},
                **_weights(columns),
            },
            "description": "The id may be missing only where the label is with it.",
        },
        "Label": {
            "type": "object",
            "required": [named.id, named.label],
            "properties": {named.id: id_, named.label: label, named.time: _TIME, **_weights(named)},
        },
        "CloudEvent": {
            "type": "object",
            "required": ["specversion", "id", "source", "type", "data"],
            "properties": {
                "specversion": {"const": "1.0"},
                "id": {"type": "string", "minLength": 1},
                "source": {"type": "string", "minLength": 1},
                "type": {"type": "string", "minLength": 1},
                "time": {"type": "string", "format": "date-time"},
                "data": {"type": "object"},
            },
        },
        "Map": {"type": "object", "description": "docs/recalibration-map.schema.json"},
        "Certificate": {
            "type": "object",
            "required": ["key", "map_version", "certificate"],
            "properties": {
                "key": {"type": ["string", "null"]},
                "map_version": {"type": "integer"},
                "certificate": {"type": ["object", "null"]},
            },
        },
        "Alarms": {"type": "array", "items": _ref("Alarm")},
        **msgspec.json.schema_components(_STRUCTS, ref_template=_REF)[1],
    }

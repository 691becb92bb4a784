"""A small schema registry for the tests: a real server of the requests that clients make.

Neither Karapace nor Apicurio can be had from PyPI or Maven Central as something that runs, and Confluent's
is in a repository of its own. What is in the records is not our own idea: confluent-kafka's serializers write
them, and register their schemas here.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from streamcal_connectors.kafka.client import Chunk, TopicPartition
from streamcal_connectors.kafka.config import KafkaConfig
from streamcal_connectors.kafka.values import Values

from streamcal.events.columns import Columns

FIRST_ID = 17


class SchemaRegistry:
    """Schemas by id; a subject has each in one version, its id.

    Set ``status`` to let every request fail with it, and ``login`` to ask for one. ``asked`` has the paths of
    the requests for schemas.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.status = 200
        self.login: str | None = None
        self.url = ""

    def register(self, schema: dict[str, Any]) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        return FIRST_ID + self.schemas.index(schema)

    def answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(target)
        match [method, *map(unquote, parts.path.strip("/").split("/"))]:
            case ["POST", "subjects", subject, *_]:
                number = self.register(body)
                return 200, {"id": number, "subject": subject, "version": number, **body}
            case ["GET", "schemas", "ids", number] | ["GET", "subjects", _, "versions", number]:
                self.asked.append(target)
                index = int(number) - FIRST_ID
                if not 0 <= index < len(self.schemas):
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                schema = self.schemas[index]  # of Protobuf as a text, unless it is asked for its bytes
                plain = parse_qs(parts.query).get("format") != ["serialized"]
                text = {"schema": 'syntax = "proto3"; // the text'}
                return 200, schema | text if schema.get("schemaType") == "PROTOBUF" and plain else schema
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """Give a registry that listens on loopback."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            status, said = registry.status, dict[str, Any](error_code=registry.status)
            login = f"Basic {base64.b64encode((registry.login or '').encode()).decode()}"
            if registry.login and self.headers.get("Authorization") != login:
                status, said = 401, {"error_code": 401, "message": "Unauthorized"}
            elif status == 200:
                status, said = registry.answer(self.command, self.path, body)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reading(url: str, columns: Columns | None = None, **options: Any) -> Values:
    """Return a decoder of values whose schemas are in a registry."""
    table = {"url": url, **options}
    config = KafkaConfig.model_validate({"schema_registry": table, "request_seconds": 5})
    return Values(config.registry_options(), "target", columns)


def decoded(values: Values, raws: Sequence[bytes | None]) -> Sequence[Any]:
    assert values.prepare({TopicPartition("events", 0): Chunk(list(range(len(raws))), list(raws))})
    return values.decode(raws)

"""A small schema registry for the tests: a real server of the requests that clients make.

Neither Karapace nor Apicurio can be had from PyPI or Maven Central as something that runs, and Confluent's
is in a repository of its own. What is in the records is not our own idea: confluent-kafka's serializers write
them, and register their schemas here.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

FIRST_ID = 17


class SchemaRegistry:
    """Schemas by id, and by subject and version.

    Set ``status`` to let every request fail with it, and ``login`` to ask for one. ``asked`` has the paths of
    the requests for schemas.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.status = 200
        self.login: str | None = None
        self.url = ""

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = FIRST_ID + self.schemas.index(schema)
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(target)
        match [method, *map(unquote, parts.path.strip("/").split("/"))]:
            case ["POST", "subjects", subject, "versions"]:
                return self._full(subject, self.register(subject, body))
            case ["POST", "subjects", subject]:
                return self._full(subject, self.register(subject, body))
            case ["GET", "schemas", "ids", number]:
                self.asked.append(target)
                index = int(number) - FIRST_ID
                if not 0 <= index < len(self.schemas):
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                return 200, self._shown(self.schemas[index], parts.query)
            case ["GET", "subjects", subject, "versions", version]:
                self.asked.append(target)
                number = self.subjects[subject][int(version) - 1]
                return 200, self._shown(self.schemas[number - FIRST_ID], parts.query)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _full(self, subject: str, number: int) -> tuple[int, dict[str, Any]]:
        version = self.subjects[subject].index(number) + 1
        return 200, {"id": number, "subject": subject, "version": version, **self.schemas[number - FIRST_ID]}

    def _shown(self, schema: dict[str, Any], query: str) -> dict[str, Any]:
        """Return a schema as a registry does: of Protobuf the text, unless it is asked for its bytes."""
        if schema.get("schemaType") != "PROTOBUF" or parse_qs(query).get("format") == ["serialized"]:
            return schema
        return {**schema, "schema": 'syntax = "proto3"; // the text'}


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """Give a registry that listens on loopback."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            login = registry.login
            if (
                login
                and self.headers.get("Authorization") != f"Basic {base64.b64encode(login.encode()).decode()}"
            ):
                status, said = 401, {"error_code": 401, "message": "Unauthorized"}
            elif registry.status != 200:
                status, said = registry.status, {"error_code": registry.status}
            else:
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

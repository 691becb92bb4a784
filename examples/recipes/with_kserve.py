"""KServe's inference logger as a source: its CloudEvents become predictions for ``streamcal run``.

``python with_kserve.py PORT predictions.jsonl`` takes what an InferenceService logs with ``logger: {mode:
response, url: http://HOST:PORT}``. The caller of a model sends a header ``Ce-Id``, and later a label with
that id; of a batch, with the id, a colon and the place of the row, from 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

RESPONSE = "org.kubeflow.serving.inference.response"


def events(headers: Mapping[str, str], body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the predictions of one logged response, of the protocol V1 or V2; of other events, none."""
    told = {name.lower(): value for name, value in headers.items()}
    if told.get("ce-type") != RESPONSE:
        return
    said = json.loads(body)
    if "outputs" in said:  # V2: one row of as many numbers as there are classes, flat or nested
        rows, flat = said["outputs"][0]["shape"][0], _flat(said["outputs"][0]["data"])
        scores = flat[len(flat) // rows - 1 :: len(flat) // rows]
    else:
        scores = [_flat(row)[-1] for row in said["predictions"]]  # the last class is the positive one
    for place, score in enumerate(scores):
        id_ = told["ce-id"] if len(scores) == 1 else f"{told['ce-id']}:{place}"
        yield {"id": id_, "score": score, "time": told["ce-time"], "key": told["ce-inferenceservicename"]}


def _flat(values: Any) -> list[float]:
    return [each for one in values for each in _flat(one)] if isinstance(values, list) else [values]


def server(port: int, path: Path) -> ThreadingHTTPServer:
    """Return a server that appends what it is told to a file of JSON lines, then answers."""
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                lines = "".join(json.dumps(each) + "\n" for each in events(dict(self.headers), body))
            except (ValueError, LookupError, TypeError) as error:
                self.send_error(400, repr(error))
                return
            with lock, path.open("a") as file:
                file.write(lines)
            self.send_response(200)
            self.end_headers()

    return ThreadingHTTPServer(("", port), Handler)


if __name__ == "__main__":
    server(int(sys.argv[1]), Path(sys.argv[2])).serve_forever()

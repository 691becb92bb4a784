"""``with_kserve.py``, told of what a model server of KServe answers, in events as its logger makes them.

The logger itself is a part of KServe's agent, in Go, and needs a cluster; its events are made here by the
library of CloudEvents, with the attributes of ``pkg/logger/worker.go``.
"""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import time
import urllib.request
from pathlib import Path
from socket import create_server
from threading import Thread
from typing import Any

import with_kserve
from cloudevents.http import CloudEvent, to_binary
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer

SCORES = [0.93, 0.2, 0.55]
V1 = {"instances": SCORES}
V2 = {"inputs": [{"name": "x", "shape": [3], "datatype": "FP64", "data": SCORES}]}


class Scoring(Model):
    """A classifier that is told its scores."""

    def __init__(self) -> None:
        super().__init__("parcels")
        self.ready = True

    def predict(self, payload: Any, *_: Any, **__: Any) -> Any:
        told = payload.inputs[0].data if isinstance(payload, InferRequest) else payload["instances"]
        rows = [[1.0 - score, score] for score in told]
        if not isinstance(payload, InferRequest):
            return {"predictions": rows}
        flat = [each for row in rows for each in row]
        return InferResponse("r1", self.name, [InferOutput("p", [len(rows), 2], "FP64", flat)])


def serve(port: int) -> None:
    ModelServer(http_port=port, enable_grpc=False, workers=1).start([Scoring()])


def post(url: str, body: bytes, headers: dict[str, str]) -> bytes:
    """Return what is answered, once there is a server."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
                return bytes(answer.read())
        except urllib.error.URLError as error:
            if isinstance(error, urllib.error.HTTPError) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main() -> None:
    with create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    model = multiprocessing.get_context("spawn").Process(target=serve, args=(port,))
    model.start()
    sink = with_kserve.server(0, Path("predictions.jsonl"))
    Thread(target=sink.serve_forever, daemon=True).start()
    try:
        for id_, path, asked in (
            ("a", "v1/models/parcels:predict", V1),
            ("b", "v2/models/parcels/infer", V2),
        ):
            body, json_type = json.dumps(asked).encode(), {"Content-Type": "application/json"}
            answer = post(f"http://127.0.0.1:{port}/{path}", body, json_type)
            for kind, logged in (("request", body), ("response", answer)):
                about = {"id": id_, "source": "http://localhost:9081/", "inferenceservicename": "parcels"}
                about |= {"type": f"org.kubeflow.serving.inference.{kind}", "namespace": "default"}
                about |= {"component": "predictor", "endpoint": "", "metadata": "{}"}
                headers, data = to_binary(CloudEvent(about, json.loads(logged)))
                post(f"http://127.0.0.1:{sink.server_port}/", data, {**headers, **json_type})
    finally:
        model.terminate()
        sink.shutdown()
    labels = [{"id": f"{id_}:{place}", "label": place == 0} for id_ in "ab" for place in range(3)]
    Path("labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    run = ["streamcal", "run", "--events", "predictions.jsonl", "--labels", "labels.jsonl", "--final"]
    subprocess.run([*run, "--output", "rows.jsonl", "--summary", "s.json"], check=True, capture_output=True)
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert sorted(row["score"] for row in rows) == sorted(SCORES * 2), rows
    joined = json.loads(Path("s.json").read_text())["join"]["joined"]
    print(f"{len(rows)} predictions of a V1 and a V2 response, {joined} labels joined, key {rows[0]['key']}")


if __name__ == "__main__":
    main()

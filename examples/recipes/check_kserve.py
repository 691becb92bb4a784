"""``with_kserve.py``, told of what a server of KServe answers, by events as its logger makes them; then a run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from threading import Thread
from typing import Any

import with_kserve
from cloudevents.http import CloudEvent, to_binary
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer

SCORES = [0.93, 0.2, 0.55]


class Scoring(Model):  # type: ignore[misc]
    """A classifier whose features are its scores."""

    def __init__(self) -> None:
        super().__init__("parcels")
        self.ready = True

    def predict(self, payload: Any, *_: Any, **__: Any) -> Any:
        if isinstance(payload, InferRequest):
            rows = [[1.0 - score, score] for score in payload.inputs[0].data]
            output = InferOutput("probabilities", [len(rows), 2], "FP64", sum(rows, []))
            return InferResponse(payload.id or "", self.name, [output])
        return {"predictions": [[1.0 - score, score] for score in payload["instances"]]}


def post(url: str, body: bytes, headers: dict[str, str]) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as answer:
        return answer.read()


def serve() -> None:
    ModelServer(http_port=int(sys.argv[1]), enable_grpc=False, workers=1).start([Scoring()])

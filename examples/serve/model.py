"""A model server that lets streamcal recalibrate its scores.

python examples/serve/model.py; the model is a made-up one of late parcels.
"""

from __future__ import annotations

import json
import math
import os
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

URL = os.environ.get("STREAMCAL_URL", "http://127.0.0.1:8080")
TIMEOUT = float(os.environ.get("STREAMCAL_TIMEOUT", "0.5"))  # seconds, twice, before the model answers alone
TOKEN_FILE = os.environ.get("STREAMCAL_TOKEN_FILE")
TOKEN = Path(TOKEN_FILE).read_text().strip() if TOKEN_FILE else ""


def tell(path: str, event: dict[str, Any]) -> dict[str, Any] | None:
    """Send an event; None if there is no answer. Sent again under its id, it is still counted once."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(URL + path, json.dumps(event).encode(), headers)  # noqa: S310
    for _ in range(2):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError as error:  # HTTPError among them: its body says what is wrong
            print(f"streamcal: {error}", flush=True)
    return None


def score(kilometres: float, express: bool) -> float:
    """Return what the model says: how likely the parcel is late."""
    return 1.0 / (1.0 + math.exp(3.0 - kilometres / 200.0 + 1.5 * express))


async def predict(request: Request) -> JSONResponse:
    """Answer with the recalibrated probability, or with the score while streamcal is away."""
    asked = await request.json()
    id_ = asked.get("id") or uuid.uuid4().hex
    raw = score(float(asked["kilometres"]), bool(asked["express"]))
    event = {"id": id_, "score": raw, "key": asked.get("country"), "time": time.time()}
    answer = await run_in_threadpool(tell, "/v1/predictions", event)
    return JSONResponse({"id": id_, "score": raw, "probability": answer["probability"] if answer else raw})


async def delivered(request: Request) -> JSONResponse:
    """Hand on what became of a parcel."""
    asked = await request.json()
    label = {"id": asked["id"], "label": int(asked["late"]), "time": time.time()}
    answer = await run_in_threadpool(tell, "/v1/labels", label)
    return JSONResponse(answer or {"outcome": "unknown"}, 200 if answer else 503)


app = Starlette(
    routes=[Route("/predict", predict, methods=["POST"]), Route("/delivered", delivered, methods=["POST"])]
)

if __name__ == "__main__":
    uvicorn.run(app, host=os.environ.get("HOST", "127.0.0.1"), port=int(os.environ.get("PORT", "8000")))

"""Queries for a server's state: maps, certificates, alarms and metrics, as of the last micro-batch.

The run's thread is asked between two micro-batches. A certificate takes as long as thousands of events to
work out, so it is worked out beside the run, from a copy of the engine, and one at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final, TypeVar

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from streamcal.engine.engine import Engine
from streamcal.monitor.alarms import advised
from streamcal.monitor.build import build_status
from streamcal.monitor.metrics import RunMetrics
from streamcal.run.pipeline import Pipeline
from streamcal.serve.http_problems import RefusedError
from streamcal.serve.request_queue import RequestQueue
from streamcal.serve.waiting import settle, within

__all__ = ["Queries"]

_SHOWN_KEYS: Final = 20  # whose alarms are shown if no key is asked for
_CERTIFICATE_SECONDS: Final = 5.0  # for so long the same certificate is given

T = TypeVar("T")


class Queries:
    """Answers questions about the state of a run; each as JSON.

    A question that names a key the run has not seen raises `RefusedError`.
    """

    def __init__(self, requests: RequestQueue, pipeline: Pipeline, metrics: RunMetrics) -> None:
        self._requests = requests
        self._pipeline = pipeline
        self._metrics = metrics
        self._registry = CollectorRegistry()
        self._registry.register(metrics)
        self._certifying = asyncio.Lock()
        self._certificates: dict[str | None, tuple[float, bytes]] = {}
        self.version = version("streamcal-engine")

    async def map(self, key: str | None) -> bytes:
        """Return the map that is served now, with its weights."""
        return await self._ask(lambda: self._engine(key).map.model_dump_json().encode())

    async def map_version(self, key: str | None) -> int:
        """Return its version; of a key that was not seen, that of the map it begins with."""
        return await self._ask(
            lambda: self._pipeline.engines[key].version if key in self._pipeline.engines else 0
        )

    async def certificate(self, key: str | None) -> bytes:
        """Return what may be claimed of that map now: ``null`` if nothing may."""
        async with self._certifying:
            held = self._certificates.get(key)
            if held is not None and time.monotonic() < held[0]:
                return held[1]
            state = await self._ask(lambda: self._engine(key).to_bytes())
            text = await asyncio.to_thread(_certified, state, key)
            if len(self._certificates) >= _SHOWN_KEYS:
                self._certificates.clear()
            self._certificates[key] = time.monotonic() + _CERTIFICATE_SECONDS, text
            return text

    async def alarms(self, key: str | None) -> bytes:
        """Return the assumptions that were refuted, of a key, or of the first ones, and what to do."""

        def read() -> bytes:
            engines = self._pipeline.first_engines(_SHOWN_KEYS) if key is None else {key: self._engine(key)}
            return msgspec.json.encode(
                [
                    advised(msgspec.structs.replace(alarm, key=name))
                    for name, engine in engines.items()
                    for alarm in engine.alarms
                ]
            )

        return await self._ask(read)

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics of the run as text, and its type."""

        def read() -> tuple[bytes, str]:
            self._metrics.update(build_status(self._pipeline, claims=False))
            encode, kind = choose_encoder(accept)
            return encode(self._registry), kind

        return await self._ask(read)

    def _engine(self, key: str | None) -> Engine:
        engines = self._pipeline.engines
        if key not in engines:
            which = "events without a key" if key is None else f"key {key[:100]!r}"
            raise RefusedError(404, f"there were no {which} so far; {len(engines)} keys are known")
        return engines[key]

    async def _ask(self, question: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[T] = loop.create_future()

        def answer() -> None:
            try:
                found = question()
            except Exception as error:
                loop.call_soon_threadsafe(_raise, waiting, error)
            else:
                loop.call_soon_threadsafe(settle, waiting, found)

        self._requests.ask(answer)
        return await within(waiting)


def _certified(state: bytes, key: str | None) -> bytes:
    engine = Engine.from_bytes(state, key)
    found = engine.certificate
    body: dict[str, Any] = {
        "key": key,
        "map_version": engine.version,
        "certificate": None if found is None else found.model_dump(mode="json"),
    }
    return msgspec.json.encode(body)


def _raise(waiting: asyncio.Future[Any], error: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(error)

"""Queries for a server's state: maps, certificates, alarms and metrics, as of the last micro-batch.

The run's thread is asked between two micro-batches. A certificate takes as long as thousands of events to
work out, so it is worked out beside the run, from a copy of the engine, and one at a time.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from streamcal.engine.engine import Engine
from streamcal.monitor.build import build_status, verdicts
from streamcal.monitor.metrics import RunMetrics
from streamcal.quality.figures import Raised
from streamcal.run.pipeline import Pipeline
from streamcal.run.rows import AlarmRow, alarm_rows, forecast_alarm_row
from streamcal.serve.http_problems import RefusedError
from streamcal.serve.request_queue import RequestQueue

_SHOWN_KEYS: Final = 20  # whose alarms are shown if no key is asked for
_CERTIFICATE_SECONDS: Final = 5.0  # for so long the same certificate is given


class CertificateAnswer(msgspec.Struct):
    """Certificate of the map that is served."""

    key: str | None
    map_version: int
    certificate: dict[str, Any] | None
    """Certificate; null if nothing may be claimed."""


class Queries:
    """Answers questions about the state of a run; each as JSON.

    A question that names a key the run has not seen raises `RefusedError`.
    """

    def __init__(self, requests: RequestQueue, pipeline: Pipeline, metrics: RunMetrics) -> None:
        self._ask = requests.ask
        self._pipeline = pipeline
        self._metrics = metrics
        self._registry = CollectorRegistry()
        self._registry.register(metrics)
        self._certifying = asyncio.Lock()
        self._certificates: dict[str | None, tuple[float, bytes]] = {}

    async def map(self, key: str | None) -> bytes:
        """Return the map that is served now, with its weights."""
        return await self._ask(lambda: self._engine(key).portable_map.model_dump_json().encode())

    async def certificate(self, key: str | None) -> bytes:
        """Return what may be claimed of that map now: ``null`` if nothing may."""
        async with self._certifying:
            until, text = self._certificates.get(key, (0.0, b""))
            if time.monotonic() >= until:
                state = await self._ask(lambda: self._engine(key).to_bytes())
                text = await asyncio.to_thread(_certified, state, key)
                if len(self._certificates) >= _SHOWN_KEYS:
                    self._certificates.clear()
                self._certificates[key] = time.monotonic() + _CERTIFICATE_SECONDS, text
            return text

    async def alarms(self, key: str | None) -> bytes:
        """Return the alarms of a key, or of the first ones: what was refuted, and a verdict that deviates."""

        def read() -> bytes:
            engines = self._pipeline.first_engines(_SHOWN_KEYS) if key is None else {key: self._engine(key)}
            judged = verdicts(self._pipeline)
            raised = list[AlarmRow]()
            for name, engine in engines.items():
                raised += alarm_rows(name, engine.alarms)
                if name in judged and judged[name].deviates:
                    raised.append(forecast_alarm_row(Raised(name, 1, judged[name]), None))
            return msgspec.json.encode(raised)

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


def _certified(state: bytes, key: str | None) -> bytes:
    engine = Engine.from_bytes(state, key)
    found = engine.certificate
    return msgspec.json.encode(
        CertificateAnswer(key, engine.version, None if found is None else found.model_dump(mode="json"))
    )

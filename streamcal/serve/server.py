"""The process: requests in the main thread's event loop, the run in one thread beside it."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Sequence
from threading import Thread
from typing import Final

import numpy as np

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.engine import Engine
from streamcal.monitor.health import Health
from streamcal.monitor.http_server import HttpServer
from streamcal.monitor.latest_status import LatestStatus
from streamcal.monitor.metrics import RunMetrics
from streamcal.monitor.routes import page_routes
from streamcal.run.config import RunConfig
from streamcal.run.journal import AGAIN
from streamcal.run.outcome import Outcome
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.ports import Sink, Source, Store
from streamcal.run.runner import Inputs, Runner
from streamcal.serve.app import App
from streamcal.serve.queries import Queries
from streamcal.serve.request_queue import RequestQueue
from streamcal.serve.served_pipeline import ServedPipeline

_SWITCH_SECONDS: Final = 0.0005  # that one thread keeps the other from going on: it stops often, to write

log = logging.getLogger("streamcal")


class Server:
    """Serves a store until it is asked to stop.

    Parameters
    ----------
    options
        of the run.
    store
        open; the caller closes it.
    calibration
        labelled events, learned before requests are taken; at most one source.
    listener
        the socket that requests come to; the caller closes it.
    token, loopback
        see `App`.
    alarms
        the sink of alarms, a webhook.
    """

    def __init__(
        self,
        options: RunConfig,
        store: Store,
        calibration: Sequence[Source],
        listener: socket.socket,
        *,
        token: str | None,
        loopback: bool,
        alarms: Sink | None = None,
    ) -> None:
        self._options = options
        self._store = store
        pipeline = ServedPipeline(options)
        self._requests = requests = RequestQueue(options, pipeline)
        sources: list[Source] = [*calibration, requests]
        metrics = RunMetrics(sources)
        self._health = health = Health(sources, time.monotonic)
        self._latest = latest = LatestStatus(pipeline, options.shown(), sources)
        app = App(
            requests,
            Queries(requests, pipeline, metrics),
            options,
            health,
            token=token,
            loopback=loopback,
            pages=page_routes(latest, lambda: self._http.stopping),
        )
        self._http = HttpServer(app, listener)
        self._error: BaseException | None = None

        def after(outcome: Outcome, seconds: float) -> None:
            requests.answer(outcome, seconds)
            health.take()
            for alarm in outcome.alarms:
                log.warning("%s", alarm.words)
            if seconds:  # else it is idle
                metrics.batch(seconds, outcome)
            latest.take(outcome)

        self._runner = Runner(
            pipeline,
            Inputs(calibration, [requests]),
            Outputs(NullSink(), alarms=alarms),
            store,
            clock=time.monotonic,
            stop=requests.done,
            after=after,
            linger=0.0,
        )

    def run(self) -> None:
        """Answer requests until it is stopped; those that were taken are answered first.

        Raises
        ------
        StoreError, OutputError, StoppedError, OSError, ValueError
            if the run cannot go on; see `Runner.run`.
        """
        sys.setswitchinterval(_SWITCH_SECONDS)
        worker = Thread(target=self._work, name="run")
        worker.start()
        try:
            asyncio.run(self._http.run())
        finally:
            self._requests.close()
            worker.join()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Take no more connections; for any thread."""
        self._http.stop()

    def _work(self) -> None:
        """Run, in a thread of its own."""
        try:
            _warm_up(self._options.recalibrator)
            if again := self._runner.resume():
                log.info(AGAIN, again)
            self._latest.take_versions(self._store.versions())
            self._health.take()
            self._runner.run()
        except BaseException as error:
            self._error = error
            self._requests.fail("the server has failed, and ends: what it has answered is kept")
        self._http.stop()


def _warm_up(config: RecalibratorConfig) -> None:
    """Import what the first map and its certificate need: else some request would wait for it."""
    engine = Engine(config)
    scores = np.linspace(0.0, 1.0, 128)
    labels = np.arange(len(scores)) % 3 == 0
    engine.learn_many(scores, labels.astype(np.int8), "target", np.zeros(len(scores)), None)
    engine.certify()

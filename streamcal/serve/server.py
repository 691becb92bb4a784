"""The process: requests in the main thread's event loop, the run in one thread beside it."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Final

import numpy as np
import uvicorn
import uvloop

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.engine import Engine
from streamcal.monitor.alarms import in_words
from streamcal.monitor.metrics import RunMetrics
from streamcal.page.latest_status import LatestStatus
from streamcal.page.routes import page_routes
from streamcal.run.config import RunConfig
from streamcal.run.pipeline import Outcome
from streamcal.run.ports import JournalStore, Sink, Source
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner
from streamcal.serve.app import App
from streamcal.serve.protocol import LimitedProtocol
from streamcal.serve.queries import Queries
from streamcal.serve.request_queue import RequestQueue, replay
from streamcal.serve.served_pipeline import ServedPipeline

__all__ = ["BACKLOG", "Server"]

_KEEP_ALIVE: Final = 60  # seconds that a connection may be idle
_STOP_SECONDS: Final = 30  # for requests to be answered when the server is asked to stop
_SWITCH_SECONDS: Final = 0.0005  # that one thread keeps the other from going on: it stops often, to write
BACKLOG: Final = 2048

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
    token, loopback
        see `App`.
    alarms
        opens the sink of alarms, a webhook: it takes an alarm again after a kill.
    """

    def __init__(
        self,
        options: RunConfig,
        store: JournalStore,
        calibration: Sequence[Source],
        *,
        token: str | None,
        loopback: bool,
        alarms: Callable[[], Sink] | None = None,
    ) -> None:
        self._options = options
        self._alarms = alarms
        self._store = store
        pipeline = ServedPipeline(options, store)
        self._requests = requests = RequestQueue(options, store, pipeline)
        sources: list[Source] = [*calibration, requests]
        metrics = RunMetrics(sources)
        self._latest = latest = LatestStatus(pipeline, options.shown(), sources)
        self._app = App(
            requests,
            Queries(requests, pipeline, metrics),
            options.columns,
            token=token,
            loopback=loopback,
            pages=page_routes(latest, self._stopping),
        )
        self._error: BaseException | None = None
        self._server: uvicorn.Server | None = None

        def after(outcome: Outcome, seconds: float) -> None:
            requests.answer(outcome, seconds)
            for alarm in outcome.alarms:
                log.warning("%s", in_words(alarm))
            if seconds:  # else it is idle
                metrics.batch(seconds, outcome)
            latest.take(outcome)

        self._runner = Runner(
            pipeline,
            Inputs(calibration, [requests]),
            Outputs(NullSink(), alarms=None if alarms is None else alarms()),
            store,
            clock=time.monotonic,
            stop=requests.done,
            after=after,
            linger=0.0,
            due=requests.due,
        )

    def run(self, listener: socket.socket) -> None:
        """Answer requests until SIGTERM or SIGINT; those that were taken are answered first.

        Raises
        ------
        StoreError, OutputError, StoppedError, OSError, ValueError
            if the run cannot go on; see `Runner.run`.
        """
        sys.setswitchinterval(_SWITCH_SECONDS)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(listener))
        if self._error is not None:
            raise self._error

    async def _serve(self, listener: socket.socket) -> None:
        config = uvicorn.Config(
            self._app,
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # no line for each request that is no HTTP: that is for clients to decide
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        logging.getLogger("uvicorn").handlers = log.handlers
        self._server = uvicorn.Server(config)
        worker = Thread(target=self._work, name="run")
        worker.start()
        try:
            await self._server.serve(sockets=[listener])
        finally:
            self._requests.close()
            await asyncio.to_thread(worker.join)

    def _stopping(self) -> bool:
        return self._server is not None and self._server.should_exit

    def _work(self) -> None:
        """Run, in a thread of its own."""
        try:
            _warm_up(self._options.recalibrator)
            count = replay(self._options, self._store, self._alarms)
            if count:
                log.info(
                    "%s events that were answered before a server was killed are part of the state now", count
                )
            self._latest.take_maps(self._store.maps())  # those of the journal among them
            self._runner.run()
        except BaseException as error:
            self._error = error
            self._requests.fail("the server has failed, and ends: what it has answered is kept")
        if self._server is not None:
            self._server.should_exit = True


def _warm_up(config: RecalibratorConfig) -> None:
    """Import what the first map and its certificate need: else some request would wait for it."""
    engine = Engine(config)
    scores = np.linspace(0.0, 1.0, 128)
    labels = np.arange(len(scores)) % 3 == 0
    engine.learn_many(scores, labels.astype(np.int8), "target", np.zeros(len(scores)), None)
    engine.certify()

"""``streamcal serve``: recalibrate over HTTP."""

# ruff: noqa: RUF009  # `option` gives a field

from __future__ import annotations

import logging
import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import typer

from streamcal.cli.opening import begin, ending, open_sink, open_source, open_store
from streamcal.cli.options import LearningOptions, option, takes_options
from streamcal.cli.terminal import Exit, fail, set_up_logging, version_line
from streamcal.monitor.addresses import http_url, is_loopback, listen
from streamcal.run.connectors import Connectors, public_url
from streamcal.run.ports import OutboxSink, Sink, SinkOptions

NEEDED: Final = "serving needs granian and starlette: pip install 'streamcal-engine[serve]'"

_LEAST_TOKEN: Final = 16  # characters

log = logging.getLogger("streamcal")


@dataclass(frozen=True, kw_only=True)
class _ServeOptions(LearningOptions):
    store: str = option("Where the state is kept: a SQLite file, as of a run.", ..., role="store")
    host: str = option("The address to listen at.", "127.0.0.1")
    port: int = option("The port; 0 takes a free one.", 8080, least=0, most=65_535)
    token_file: Path | None = option(
        "A file with the token that requests must bear; needed beyond this machine.", role="read"
    )
    alarms: str | None = option("The webhook that alarms are posted to: https://HOST/PATH.")


@takes_options
def serve(given: _ServeOptions) -> None:
    """Recalibrate over HTTP: predictions and labels are answered once they are in the store.

    Takes JSON and JSON lines; see /openapi.json. It is the pipeline of `streamcal run`, and the same store.
    """
    set_up_logging(as_json=given.log_json, quiet=given.quiet)
    if any(find_spec(name) is None for name in ("granian", "starlette")):
        fail(NEEDED, Exit.USAGE)
    from streamcal.monitor.http_server import BACKLOG
    from streamcal.serve.server import Server

    host, loopback = given.host, is_loopback(given.host)
    if given.token_file is None and not loopback:
        fail(
            f"--host {host} can be reached from other machines: give --token-file FILE with a token that"
            " requests must bear, or listen at 127.0.0.1",
            Exit.USAGE,
        )
    token = None if given.token_file is None else _read_token(given.token_file)
    options, stop, connectors = begin(given)
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(listen(host, given.port, BACKLOG))
        except OSError as error:
            fail(f"cannot listen at {host} port {given.port}: {error.strerror or error}", Exit.USAGE)
        calibration = []
        if given.calibration is not None:
            calibration = [open_source(connectors, given.calibration, "calibration", options.columns, stack)]
        state = open_store(connectors, given.store, stack)
        url = given.alarms
        server = Server(
            options,
            state,
            calibration,
            listener,
            token=token,
            loopback=loopback,
            alarms=None if url is None else _open_webhook(connectors, url, stack),
        )
        log.info("%s", version_line())
        log.info("listening at %s", http_url(host, listener.getsockname()[1]))
        with ending(stop):
            stop.then = server.stop
            server.run()
    log.warning("stopped: everything that was answered is in the store")
    if stop.status:
        raise typer.Exit(stop.status)


def _open_webhook(connectors: Connectors, url: str, stack: ExitStack) -> Sink:
    sink = open_sink(connectors, url, stack, SinkOptions(rows="alarms"))
    if not isinstance(sink, OutboxSink):
        fail(
            f"--alarms {public_url(url)}: a server posts alarms to a webhook, https://HOST/PATH;"
            " GET /v1/alarms lists them, and `streamcal run` writes them to files and topics",
            Exit.USAGE,
        )
    return sink


def _read_token(path: Path) -> str:
    try:
        data = path.read_bytes()
        mode = path.stat().st_mode
    except OSError as error:
        fail(f"--token-file {path}: cannot be read: {error.strerror or error}", Exit.USAGE)
    try:
        token = data.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if len(token) < _LEAST_TOKEN or not token.isprintable() or " " in token:
        fail(
            f"--token-file {path}: it must hold one token of at least {_LEAST_TOKEN} ASCII characters without"
            f" spaces, such as `openssl rand -hex 32` prints; it holds {len(data)} bytes",
            Exit.USAGE,
        )
    if mode & (stat.S_IRGRP | stat.S_IROTH) and os.name == "posix":
        log.warning("--token-file %s: other users can read it; chmod 600 %s", path, path)
    return token

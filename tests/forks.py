"""Runs the command line in forks: all imports lie behind them, which cost more than most runs.

A fork has standard streams, environment, working directory and exit status of its own. As a program,
``python -m tests.forks SOCKET``, it is the server that forks them, one at a time.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["forked"]

_ROOT: Final = Path(__file__).parents[1]
_REQUEST: Final = 1 << 18  # bytes, at most


def forked(
    arguments: list[str], stdin: bytes, environment: dict[str, str], seconds: float
) -> tuple[int, bytes, bytes]:
    """Call the command line; return its exit status and what it wrote.

    Raises
    ------
    TimeoutError
        if it took longer than so many seconds; it has been killed.
    """
    server = _server()
    request = {"arguments": arguments, "environment": environment, "folder": str(Path.cwd())}
    (its_in, our_in), (our_out, its_out), (our_err, its_err) = os.pipe(), os.pipe(), os.pipe()
    socket.send_fds(server, [json.dumps(request).encode()], [its_in, its_out, its_err])
    for descriptor in (its_in, its_out, its_err):
        os.close(descriptor)
    process = int(server.recv(64))
    with ThreadPoolExecutor(2) as pool:
        wrote = [pool.submit(_all_of, descriptor) for descriptor in (our_out, our_err)]
        with suppress(BrokenPipeError), os.fdopen(our_in, "wb") as pipe:
            pipe.write(stdin)
        server.settimeout(seconds)
        try:
            status = int(server.recv(64))
        except TimeoutError:
            os.kill(process, signal.SIGKILL)
            server.settimeout(None)
            server.recv(64)
            raise
        out, err = (each.result() for each in wrote)
    return status, out, err


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.forks", str(theirs.fileno())]
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _all_of(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.read()


def _serve(requests: socket.socket) -> list[str]:
    """Fork for every request; return in a fork, with the arguments that it is to run with."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _REQUEST, 3)
        if not message:
            os._exit(0)
        process = os.fork()
        if not process:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(str(process).encode())
        requests.send(str(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])).encode())
    requests.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    request = json.loads(message)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    return list(request["arguments"])


if __name__ == "__main__":
    # What any of the runs imports, and only when it is needed.
    import pyarrow.parquet  # noqa: F401
    import scipy.special  # noqa: F401
    import streamcal_connectors.files
    import streamcal_connectors.sqlite.store
    import streamcal_connectors.tables

    from streamcal.cli.app import main

    with suppress(ImportError):  # where there is no client of Kafka
        import confluent_kafka  # noqa: F401
        import streamcal_connectors.kafka.source  # noqa: F401

    gc.freeze()
    sys.argv[1:] = _serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        main()
        sys.exit()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(end.code or 0)  # to take all modules apart costs as much as to import them

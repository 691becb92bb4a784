"""Runs the command line in forks: all imports lie behind them, which cost more than most runs.

A fork has standard streams, environment, working directory and exit status of its own. As a program,
``python -m tests.forks SOCKET``, it is the server that forks them.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_REQUEST: Final = 1 << 18  # bytes, at most


class Fork(subprocess.Popen[Any]):
    """The command line with arguments: a `subprocess.Popen` without the start of a Python.

    Takes of its options those of standard streams and text, ``cwd`` and ``env``.
    """

    _wait: Callable[[float], int]
    _close_pipe_fds: Callable[..., None]

    def __init__(self, arguments: list[Any], **options: Any) -> None:
        self._ended, self._its_end = socket.socketpair()
        with self._its_end:
            super().__init__([str(each) for each in arguments], **options)

    def _execute_child(self, args: list[str], *options: Any) -> None:
        """Start it: in place of what `subprocess.Popen` does."""
        cwd, environment = options[4:6]
        pipes = options[9:15]
        request = {
            "arguments": args,
            "environment": dict(os.environ if environment is None else environment),
            "folder": str(cwd or Path.cwd()),
        }
        streams = [number if end < 0 else end for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        try:
            server = _server()
            socket.send_fds(server, [json.dumps(request).encode()], [*streams, self._its_end.fileno()])
            self.pid = int(server.recv(64))
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """Return what `os.waitpid` does of a child."""
        try:
            status = self._ended.recv(64, socket.MSG_DONTWAIT if flags & os.WNOHANG else 0)
        except BlockingIOError:
            return 0, 0
        self._ended.close()
        return self.pid, int(status)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self._wait(0.0)
        return self.returncode


def forked(
    arguments: list[Any], stdin: bytes, environment: dict[str, str], seconds: float
) -> tuple[int, bytes, bytes]:
    """Run it to its end, within so many seconds; return the exit status and what it wrote."""
    pipe = subprocess.PIPE
    with Fork(arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
        try:
            out, err = process.communicate(stdin, seconds)
        except BaseException:
            process.kill()
            raise
    return process.returncode, out, err


_COMMAND: Final = """#!{python} -IS
import json, os, signal, socket, sys

try:
    server = socket.socket(fileno={server})
except OSError:  # a program in between has closed it
    os.execv("{python}", ["{python}", "-c", "from streamcal.cli.app import main; main()", *sys.argv[1:]])
ours, theirs = socket.socketpair()
request = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2, theirs.fileno()])
theirs.close()
process = int(server.recv(64))
signal.signal(signal.SIGTERM, lambda number, _: os.kill(process, number))
ended = os.waitstatus_to_exitcode(int(ours.recv(64)))
sys.exit(ended if ended >= 0 else 128 - ended)
"""


@cache
def command() -> tuple[Path, int]:
    """Return the folder of a program ``streamcal`` that runs in forks, and the descriptor that it needs."""
    server, folder = _server().fileno(), Path(tempfile.mkdtemp(prefix="streamcal-"))
    atexit.register(shutil.rmtree, folder)
    program = folder / "streamcal"
    program.write_text(_COMMAND.format(python=sys.executable, server=server))
    program.chmod(0o755)
    return folder, server


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


def _serve(requests: socket.socket) -> list[str]:
    """Fork for every request, and tell how each fork ended; return in a fork, with its arguments."""
    forks: dict[int, int] = {}  # by process, the descriptor of what waits for it
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as ready:
        for each in (requests, woken):
            ready.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is woken:
                    woken.recv(64)
                    _tell_ends(forks)
                    continue
                message, descriptors, _, _ = socket.recv_fds(requests, _REQUEST, 4)
                if not message:
                    os._exit(0)
                process = os.fork()
                if not process:
                    break
                forks[process] = descriptors.pop()
                for descriptor in descriptors:
                    os.close(descriptor)
                requests.send(str(process).encode())
            else:
                continue
            break
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for each in (requests, woken, wakes):
        each.close()
    for descriptor in (*forks.values(), descriptors.pop()):
        os.close(descriptor)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    request = json.loads(message)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    return list(request["arguments"])


def _tell_ends(forks: dict[int, int]) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            process, status = ended
            with suppress(BrokenPipeError), os.fdopen(forks.pop(process), "wb") as waiting:
                waiting.write(str(status).encode())


if __name__ == "__main__":
    # What any of the runs imports, and only when it is needed.
    import pyarrow.parquet  # noqa: F401
    import scipy.special  # noqa: F401
    import streamcal_connectors.files
    import streamcal_connectors.sqlite.store
    import streamcal_connectors.tables

    from streamcal.cli.app import main
    from streamcal.run import runner

    with suppress(ImportError):  # where there is no client of Kafka
        import confluent_kafka  # noqa: F401
        import streamcal_connectors.kafka.source  # noqa: F401

    gc.freeze()
    sys.argv[1:] = _serve(socket.socket(fileno=int(sys.argv[1])))
    # Small micro-batches are many moments to be killed at.
    runner.MAX_EVENTS = int(os.environ.get("STREAMCAL_TEST_MAX_EVENTS", runner.MAX_EVENTS))
    try:
        main()
        sys.exit()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(end.code or 0)  # to take all modules apart costs as much as to import them

"""One real Apache Kafka broker for the tests: KRaft, a single node, on loopback.

The jars come from Maven Central through ``pom.xml``, once, into ``.cache/kafka/`` of the repository;
after that no network is needed. Beside them lies an archive of Kafka's loaded classes, made once,
which halves what a start costs. A broker lives in a temporary directory of its own and dies with the
process that started it, however that process ends.

Costs, two cores with other work on them: fetch 5 s and archive 7 s, both once (44 and 50 MB); start
3 s, start after `kill` 3.5 s, of which 1.5 s are for the old broker's session to end, start after
`stop` 2.3 s; 150 MB of memory, more under load (the heap is at most 512 MB).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.maven import fetched, locked

HERE = Path(__file__).resolve().parent
LOGGING = HERE / "log4j2.properties"

START_TIMEOUT = 90.0
"""Seconds. A start takes 3; the rest is for a machine whose cores are taken."""
STOP_TIMEOUT = 30.0

# Below Linux's ephemeral range (32768..60999). Inside it, a client that keeps reconnecting while
# the broker is down can be handed the broker's own port as its source and connect to itself, and
# the broker then cannot bind it again.
PORTS = range(20_000, 32_000)

SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}

# One node: every internal topic has one replica, and one partition so that it is made quickly.
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1

# A test makes its own topics, waits for nobody, and sees a transaction that timed out aborted
# within half a second of its time-out instead of ten.
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=500

# After kill -9 the controller takes the new broker only once the old one's session has ended
# (9 s by default).
broker.heartbeat.interval.ms=300
broker.session.timeout.ms=1500

# Small: the cleaner alone would take 128 MB of the heap.
log.cleaner.dedupe.buffer.size=8388608
log.cleaner.backoff.ms=1000
log.index.size.max.bytes=1048576
num.network.threads=2
num.io.threads=4
background.threads=2
"""


class BrokerError(RuntimeError):
    """The broker did not do what was asked; the message ends with the tail of its log."""


def fetch() -> Path:
    """Bring the jars unless they are there, and return their directory; see `tests.maven.fetched`."""
    return fetched(HERE / "pom.xml", "kafka")


@functools.cache
def class_archive() -> Path:
    """File of the class-data archive for these jars and this Java, whether or not it is there."""
    said = subprocess.run(["java", "-version"], capture_output=True, check=False).stderr
    return fetch().with_name(f"{fetch().name}-{hashlib.sha256(said).hexdigest()[:12]}.jsa")


def archive() -> None:
    """Start and stop one broker so that Java writes its class-data archive, unless it is there.

    A Java that cannot write one leaves an empty file, and brokers start without.

    Raises
    ------
    BrokerError
        That broker did not start or stop.
    """
    target = class_archive()
    if target.exists():
        return
    with locked(target.parent):
        if target.exists():
            return
        first = Broker()
        try:
            written = first.directory / "classes.jsa"
            first._format()
            first._sharing = f"-XX:ArchiveClassesAtExit={written}"
            first._start()
            first.stop()
            written.touch()
            partial = target.with_suffix(".partial")
            shutil.move(written, partial)
            partial.rename(target)
        finally:
            first.close()


class Broker:
    """A broker with its own data directory and its own fixed port.

    Use it as a context manager, or call `start` and then `close`. `kill` and `restart` keep the
    data and the port; `close` removes the data. Not thread-safe; any thread may call it.

    Attributes
    ----------
    port:
        Port on 127.0.0.1 that clients connect to, fixed by the first `start`.
    directory:
        Where the broker's data, configuration and logs are.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="streamcal-kafka-"))
        self.port = 0
        self._sharing = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port`` for a client's ``bootstrap_servers``."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive (a paused one is)."""
        if self._process is not None and self._process.poll() is not None:
            self._reaped()
        return self._process is not None

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        return self._running_process().pid

    def start(self) -> None:
        """Format the storage if this is the first start, start the broker, wait until it serves.

        Returns once the broker answers a metadata request with itself as a live member, so a
        client that connects now needs no retry.

        Raises
        ------
        FetchError
            The jars are not there and could not be fetched.
        BrokerError
            It runs already, or it ended or did not serve within `START_TIMEOUT` seconds.
        """
        if self.running:
            raise BrokerError(f"the broker at {self.bootstrap} runs already")
        fetch()
        archive()
        if class_archive().stat().st_size:
            self._sharing = f"-XX:SharedArchiveFile={class_archive()}"
        self._start_somewhere()

    def stop(self) -> None:
        """Shut the broker down in order (SIGTERM); harmless when it does not run."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(
                f"the broker did not stop within {STOP_TIMEOUT:.0f} s and was killed:\n" + self.log_tail()
            ) from None
        self._reaped()

    def kill(self) -> None:
        """Kill the broker at once (SIGKILL), as a crash would; harmless when it does not run."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._reaped()

    def restart(self) -> None:
        """Start the broker again on the same data and port, stopping it first if it runs."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the broker (SIGSTOP): its sockets stay open and nothing answers."""
        process = self._running_process()
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # The last of its threads stops a moment later.

    def resume(self) -> None:
        """Let a paused broker go on (SIGCONT)."""
        self._running_process().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill the broker and remove its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def lost_transactions(self) -> int:
        """How often it has forgotten how a transaction was to end, by its log.

        A broker that was killed, and is started before its controller has fenced the killed one, at once
        loads what is to be committed or aborted. If the fencing comes before that is done, it finds no leader
        for the partitions, takes them for deleted, and drops the markers that end the transaction.
        """
        log = self.directory / "broker.log"
        return log.read_text(errors="replace").count("Couldn't find leader endpoint for partitions")

    def log_tail(self, lines: int = 40) -> str:
        """Return the last `lines` lines of what the broker printed and logged."""
        parts = []
        for name in ("stdout.log", "broker.log"):
            with contextlib.suppress(FileNotFoundError):
                text = (self.directory / name).read_text(errors="replace")
                if text.strip():
                    parts.append(f"--- {self.directory / name}\n{_tail(text, lines)}")
        return "\n".join(parts) or "(the broker logged nothing)"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_somewhere(self) -> None:
        """Start on the port that is fixed, or else on one that nobody takes before Kafka does."""
        for left in (0,) if self.port else (2, 1, 0):
            try:
                self._start()
            except BrokerError:
                if not left or "Address already in use" not in self.log_tail(400):
                    raise
                shutil.rmtree(self.directory / "data", ignore_errors=True)
                (self.directory / "broker.log").unlink(missing_ok=True)
                self.port = 0
            else:
                return

    def _start(self) -> None:
        if not self.port:
            self._format()
        with (self.directory / "stdout.log").open("ab") as out:
            self._process = self._java(
                out, "-XX:+ExitOnOutOfMemoryError", "kafka.Kafka", str(self.directory / "server.properties")
            )
        self._guard = _guard(self._process.pid, self.directory)
        try:
            self._await_ready()
        except BaseException:
            self.kill()
            raise

    def _format(self) -> None:
        self.port, controller = free_ports(2)
        properties = self.directory / "server.properties"
        properties.write_text(
            SERVER_PROPERTIES.format(port=self.port, controller=controller, data=self.directory / "data")
        )
        with (self.directory / "stdout.log").open("ab") as out:
            process = self._java(
                out,
                "kafka.tools.StorageTool",
                "format",
                "--cluster-id",
                "c3RyZWFtY2FsLXRlc3RzLQ",
                "--config",
                str(properties),
            )
            try:
                status = process.wait(START_TIMEOUT)
            except BaseException:
                process.kill()
                process.wait()
                raise
        if status:
            self.port = 0
            raise BrokerError(f"formatting the storage ended with {status}:\n{self.log_tail()}")

    def _java(self, out: IO[bytes], *arguments: str) -> subprocess.Popen[bytes]:
        """Start Java away from our terminal, so that Ctrl-C reaches the tests and not it."""
        return subprocess.Popen(
            [
                "java",
                "-Xms64m",
                "-Xmx512m",
                # Cheap to start: no parallel collector, and no optimising compiler, which would
                # take the tests' second core for longer than most brokers live.
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-XX:-UsePerfData",
                *filter(None, [self._sharing]),
                "-Djava.awt.headless=true",
                f"-Djava.io.tmpdir={self.directory}",
                f"-Dlog4j2.configurationFile={LOGGING}",
                f"-Dbroker.log={self.directory / 'broker.log'}",
                "-cp",
                f"{fetch()}/*",
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=self.directory,
            start_new_session=True,
        )

    def _await_ready(self) -> None:
        process = self._running_process()
        deadline = time.monotonic() + START_TIMEOUT
        while (status := process.poll()) is None:
            if serves(self.port):
                return
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"the broker at {self.bootstrap} did not serve within {START_TIMEOUT:.0f} s:\n"
                    + self.log_tail()
                )
            time.sleep(0.05)
        raise BrokerError(f"the broker ended with {status} while starting:\n{self.log_tail()}")

    def _running_process(self) -> subprocess.Popen[bytes]:
        if not self.running or self._process is None:
            raise BrokerError(f"the broker at {self.bootstrap} does not run:\n{self.log_tail()}")
        return self._process

    def _reaped(self) -> None:
        """Forget the ended process, and call off its guard: the pid may soon be another's."""
        self._process = None
        if self._guard is not None:
            self._guard.communicate(b"ended\n")
            self._guard = None


def free_ports(count: int) -> list[int]:
    """Return `count` distinct ports that are free on 127.0.0.1 now.

    Raises
    ------
    BrokerError
        Not that many of `PORTS` are free.
    """
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as taken:
                if taken.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise BrokerError(f"fewer than {count} of the ports {PORTS.start}..{PORTS.stop - 1} are free")


def serves(port: int) -> bool:
    """Whether the broker at `port` answers a metadata request and names itself as a member.

    A broker that is still fenced, as every broker is right after its start, lists no members.
    """
    # Request header v1: api 3 (Metadata), version 4, correlation id 1, no client id; then an
    # empty list of topics and "do not create them".
    body = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">i?", 0, False)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
            link.sendall(struct.pack(">i", len(body)) + body)
            stream = link.makefile("rb")
            with stream:
                (size,) = struct.unpack(">i", stream.read(4))
                answer = stream.read(size)
        # Response: correlation id, throttle time, then the members: id, host, port, rack.
        (members,) = struct.unpack_from(">i", answer, 8)
        offset = 12
        for _ in range(members):
            (length,) = struct.unpack_from(">h", answer, offset + 4)
            (listed, rack) = struct.unpack_from(">ih", answer, offset + 6 + length)
            if listed == port:
                return True
            offset += 12 + length + max(rack, 0)
    except (OSError, struct.error):
        return False
    return False


def _guard(pid: int, directory: Path) -> subprocess.Popen[bytes]:
    """Start a shell that kills `pid` and removes its directory when we end, however we end.

    Our end of its input is closed by the kernel with our process; a line on it sends the shell off.
    PR_SET_PDEATHSIG would be tied to the thread that started the broker, and a test may restart the
    broker from a thread that ends.
    """
    script = 'read -r line || { kill -9 "$1"; sleep 1; rm -rf "$2"; }'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", str(pid), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _tail(text: str, lines: int = 40) -> str:
    return "\n".join(text.rstrip().splitlines()[-lines:])

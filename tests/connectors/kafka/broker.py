"""One real Apache Kafka broker for the tests: KRaft, a single node, on loopback.

The jars come from Maven Central through ``pom.xml``, once, into ``.cache/kafka/`` of the repository;
after that no network is needed. Beside them lies an archive of Kafka's loaded classes, made once,
which halves what a start costs: 3 s, and 3.5 s after `kill`, of which 1.5 s are for the old broker's
session to end. A broker lives in a temporary directory of its own and dies with the process that
started it, however that process ends. It takes 150 MB of memory, more under load.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.maven import fetched, locked

HERE = Path(__file__).resolve().parent

START_TIMEOUT = 90.0
"""Seconds. A start takes 3; the rest is for a machine whose cores are taken."""

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

# Kills a process and removes its directory when this process ends, however it ends: the kernel closes our
# end of its input. PR_SET_PDEATHSIG would be tied to the thread that started the broker.
GUARD = 'read -r line || { kill -9 "$1"; sleep 1; rm -rf "$2"; }'


def fetch() -> Path:
    """Bring the jars unless they are there, and return their directory; see `tests.maven.fetched`."""
    return fetched(HERE / "pom.xml", "kafka")


@functools.cache
def class_archive() -> Path:
    """Return the archive of classes for these jars and this Java, made by a first broker unless it is there.

    A Java that cannot write one leaves an empty file, and brokers start without.
    """
    said = subprocess.run(["java", "-version"], capture_output=True, check=False).stderr
    target = fetch().with_name(f"{fetch().name}-{hashlib.sha256(said).hexdigest()[:12]}.jsa")
    with locked(target.parent):
        if not target.exists():
            with Broker(sharing=f"-XX:ArchiveClassesAtExit={target.with_suffix('.partial')}") as first:
                first.end(signal.SIGTERM)
            target.with_suffix(".partial").touch()
            target.with_suffix(".partial").rename(target)
    return target


class Broker:
    """A broker with its own data directory and its own fixed port.

    Use it as a context manager. `kill` and `start` keep the data and the port; `close` removes the data.
    """

    def __init__(self, properties: str = SERVER_PROPERTIES, sharing: str | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="streamcal-kafka-"))
        self.log = self.directory / "broker.log"
        self.port, controller = free_ports(2)
        self._sharing = sharing
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes]
        (self.directory / "server.properties").write_text(
            properties.format(port=self.port, controller=controller, data=self.directory / "data")
        )

    @property
    def bootstrap(self) -> str:
        """``host:port`` for a client's ``bootstrap_servers``."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether it was started and not killed (a paused one runs)."""
        return self._process is not None

    @property
    def lost_transactions(self) -> int:
        """How often it has forgotten how a transaction was to end, by its log.

        A broker that was killed, and is started before its controller has fenced the killed one, at once
        loads what is to be committed or aborted. If the fencing comes before that is done, it finds no leader
        for the partitions, takes them for deleted, and drops the markers that end the transaction.
        """
        return self.log.read_text(errors="replace").count("Couldn't find leader endpoint for partitions")

    def start(self) -> None:
        """Start the broker, and wait until clients that connect need no retry."""
        if not (self.directory / "data").exists():
            cluster = ("--cluster-id", "c3RyZWFtY2FsLXRlc3RzLQ", "--config", "server.properties")
            assert self._java("kafka.tools.StorageTool", "format", *cluster).wait(START_TIMEOUT) == 0
        seen = self.log.stat().st_size if self.log.exists() else 0
        self._process = self._java("-XX:+ExitOnOutOfMemoryError", "kafka.Kafka", "server.properties")
        guard = ["/bin/sh", "-c", GUARD, "sh", str(self._process.pid), str(self.directory)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        deadline = time.monotonic() + START_TIMEOUT
        while b"Kafka Server started" not in self.log.read_bytes()[seen:] if self.log.exists() else True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker did not start:\n{self.log.read_text()[-5000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the broker at once (SIGKILL), as a crash would; harmless when it does not run."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> None:
        """Send a signal that ends it, wait for that, and call off its guard: the pid may soon be reused."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None
            self._guard.communicate(b"ended\n")

    def pause(self) -> None:
        """Freeze the broker (SIGSTOP): its sockets stay open and nothing answers."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # The last of its threads stops a moment later.

    def resume(self) -> None:
        """Let a paused broker go on (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill the broker and remove its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start Java away from our terminal, so that Ctrl-C reaches the tests and not it."""
        sharing = self._sharing
        if sharing is None and class_archive().stat().st_size:
            sharing = f"-XX:SharedArchiveFile={class_archive()}"
        # Cheap to start: no parallel collector, and no optimising compiler, which would take the tests'
        # second core for longer than most brokers live.
        cheap = ["-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        place = [f"-Djava.io.tmpdir={self.directory}", f"-Dbroker.log={self.log}"]
        place += [f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}", "-cp", f"{fetch()}/*"]
        with (self.directory / "stdout.log").open("ab") as out:
            return subprocess.Popen(
                ["java", *cheap, *filter(None, [sharing]), *place, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
            )


def free_ports(count: int) -> list[int]:
    """Return distinct ports that are free on 127.0.0.1 now."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as probe:
            port = random.choice(PORTS)
            if port not in found and probe.connect_ex(("127.0.0.1", port)):
                found.append(port)
    return found

"""A run over Kafka while all goes wrong around it, and at its end the same as one that was left alone.

    python -m tests.soak [--minutes 60] [--seed 0]

Predictions and labels keep coming. Meanwhile the run is killed, its disk is full, a byte of its store flips
and strangers flood it; the broker is killed or hangs, old records are deleted, and topics get more
partitions. At the end, every prediction was answered once, and the sketches of the engine are byte-equal to
those of a run over the same events on topics that nobody touched.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from streamcal_connectors.kafka.positions import offset_of

from streamcal.engine.engine import Engine
from streamcal.run.connectors import Connectors
from tests.connectors.kafka.broker import Broker, free_ports
from tests.connectors.kafka.topics import Kafka, ends, started, streamcal, until
from tests.forks import Fork

PART = 400
"""Predictions that come between two mishaps."""
DELAY, FEW = 300, 65_536  # predictions until a label comes; bytes of a full disk
MOST_PARTITIONS = 12


class Soak:
    """One stream on two pairs of topics: those that mishaps befall, and those that are left alone."""

    def __init__(self, broker: Broker, folder: Path, seed: int) -> None:
        self.broker, self.kafka, self.folder = broker, Kafka(broker), folder
        self.rng, self.sent = random.Random(seed), 0
        names = ("broken", "whole")
        self.topics = {name: [self.kafka.topic(kind, 2) for kind in ("events", "labels")] for name in names}
        self.answers = {name: self.kafka.topic("answers") for name in names}
        self.port, self.partitions = free_ports(1)[0], 2
        self.mishaps = Counter[str]()
        self._runs, self._run = ExitStack(), list[tuple[Fork, Callable[[], str]]]()

    def command(self, name: str) -> list[Any]:
        events, labels = map(self.kafka.url, self.topics[name])
        own = ["run", "--events", events, "--labels", labels, "--store", self.folder / f"{name}.db"]
        metrics = ["--metrics", self.port] if name == "broken" else []
        return [*own, "--output", self.kafka.url(self.answers[name]), *metrics]

    # The stream

    def send(self) -> None:
        """Send the next predictions, and the labels that are due, to both pairs of topics."""
        first, last, rows = self.sent, self.sent + PART, list[tuple[int, bytes, bytes]]()
        for n in range(first, last):
            score = random.Random(n).random()
            rows.append((0, b"%d" % n, b'{"id":"%d","score":%.6f,"time":%d}' % (n, score, n)))
            if n >= DELAY:
                of = n - DELAY
                label = random.Random(-of).random() < random.Random(of).random() ** 2
                rows.append((1, b"%d" % of, b'{"id":"%d","label":%d,"time":%d}' % (of, label, n)))
        with self.kafka.producer(batch_size=1 << 18) as sender:
            sent = [sender.send(self.topics[name][which], value, key=key)
                    for name in self.topics for which, key, value in rows]  # fmt: skip
            sender.flush(180)
            assert all(each.succeeded() for each in sent)
        self.sent = last

    def start(self) -> tuple[Fork, Callable[[], str]]:
        """Start the run if it does not run; give its process, and what it says."""
        while self._run and self._run[0][0].poll() is not None:
            process, said = self._run.pop()
            assert "Traceback" not in said(), said()
            assert process.returncode in {-signal.SIGKILL, 3}, (process.returncode, said())
        if not self._run:
            self._run.append(self._runs.enter_context(started(*self.command("broken"))))
        return self._run[0]

    def positions(self, name: str) -> dict[Any, int]:
        """Return the committed offset of each partition of the inputs of a run; nothing without a store."""
        path = self.folder / f"{name}.db"
        if not path.exists():
            return {}
        with closing(Connectors().store(str(path), read_only=True)) as store:
            return {
                (source.removeprefix("kafka:"), int(partition)): offset_of(at)
                for source, places in store.load().positions.items()
                for partition, at in places.items()
            }

    def read_all(self, name: str) -> bool:
        """Return whether a run has committed all that is on its topics."""
        with suppress(Exception), self.kafka.reader() as consumer:
            found, last = self.positions(name), ends(consumer, self.topics[name])
            return all(found.get((at.topic, at.partition), 0) >= end for at, end in last.items())
        return False

    # What goes wrong

    def kill(self) -> None:
        self.start()[0].kill()

    def fill_the_disk(self) -> None:
        process, _ = self.start()
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (FEW, FEW))

    def flip_a_byte(self) -> None:
        """Flip one in a copy of the store: it is refused, or shown as before."""
        self.kill()
        self._run[0][0].wait(60)
        store, copy = self.folder / "broken.db", self.folder / "copy.db"
        if not store.exists():
            return
        for suffix in ("", "-wal"):
            if Path(f"{store}{suffix}").exists():
                shutil.copy(f"{store}{suffix}", f"{copy}{suffix}")
        before = streamcal("show", copy, status=0)
        data = bytearray(copy.read_bytes())
        data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        copy.write_bytes(data)
        after = streamcal("show", copy)
        assert after.returncode in {0, 3}, after.stderr
        assert "Traceback" not in after.stderr, after.stderr
        assert after.returncode or after.stdout == before.stdout, "a flipped byte changed what is shown"
        for path in self.folder.glob("copy.db*"):
            path.unlink()

    def flood(self) -> None:
        """Open connections that ask half of a question."""
        self.start()
        opened = []
        for _ in range(300):
            with suppress(OSError):
                opened.append(socket.create_connection(("127.0.0.1", self.port), 1.0))
                opened[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        for each in opened:
            each.close()

    def kill_the_broker(self) -> None:
        self.broker.kill()
        time.sleep(self.rng.uniform(0.0, 0.5))
        self.broker.start()

    def freeze_the_broker(self) -> None:
        self.broker.pause()
        time.sleep(self.rng.uniform(0.5, 3.0))
        self.broker.resume()

    def retain_little(self) -> None:
        """Delete the records that are committed."""
        with self.kafka.admin() as admin:
            for (topic, partition), offset in self.positions("broken").items():
                admin.delete_records({_place(topic, partition): offset})

    def add_partitions(self) -> None:
        if self.partitions < MOST_PARTITIONS:
            self.partitions += 1
            for topic in self.topics["broken"]:
                self.kafka.grow(topic, self.partitions)

    def mishap(self) -> None:
        kinds = [self.kill, self.fill_the_disk, self.flip_a_byte, self.flood, self.kill_the_broker]
        kinds += [self.freeze_the_broker, self.retain_little, self.add_partitions]
        kind = self.rng.choice(kinds)
        self.mishaps[kind.__name__] += 1
        kind()

    # All of it

    def go_on(self, seconds: float) -> Iterator[str]:
        """Go on for so long, then check; say what happened."""
        until_then = time.monotonic() + seconds
        while time.monotonic() < until_then:
            self.send()
            self.start()
            time.sleep(self.rng.uniform(0.0, 1.5))
            self.mishap()
            yield f"{self.sent:,} predictions; {sum(self.mishaps.values())} mishaps"
        with self._runs:
            for name in self.topics:
                if name == "whole":
                    self._run = [self._runs.enter_context(started(*self.command(name)))]
                until(lambda name=name: self._runs_on(name) and self.read_all(name), f"{name}: not done")
                process, said = self._run.pop()
                process.terminate()
                assert process.wait(60) == 0, said()
                assert self.kafka.answered(self.answers[name]) == list(range(self.sent)), name
                yield f"{name}: {self.sent:,} predictions, each answered once"
        broken, whole = (self.sketches(name) for name in self.topics)
        assert broken == whole
        yield f"sketches byte-equal after {dict(self.mishaps)}"

    def _runs_on(self, name: str) -> bool:
        return bool(self.start()) if name == "broken" else self._run[0][0].poll() is None

    def sketches(self, name: str) -> list[bytes]:
        """Return sketches of scores and labels, which do not depend on the order of events."""
        with closing(Connectors().store(str(self.folder / f"{name}.db"), read_only=True)) as store:
            engine = Engine.from_bytes(store.load().engines[None])
        assert engine.target.labels == self.sent - DELAY
        return [engine._unlabelled.sketch.to_bytes(), engine._target.log.sketch.to_bytes()]


def _place(topic: str, partition: int) -> Any:
    from kafka import TopicPartition

    return TopicPartition(topic, partition)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        for line in Soak(broker, Path(folder), asked.seed).go_on(60.0 * asked.minutes):
            print(line, flush=True)


if __name__ == "__main__":
    main()

"""Kill a server under load, again and again, with clients that retry: python -m tests.serve.kill --times 20.

Every id is answered; sent again, it is answered as before; and it is counted once.
"""

from __future__ import annotations

import argparse
import http.client
import random
import signal
import tempfile
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.serve.servers import LINES, Served, exchange

CLIENTS = 8
BATCH = 20


class Client(Thread):
    """Sends predictions, their labels, and some of both again, until told to end."""

    def __init__(self, number: int, port: int, end: Event) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self.number, self.port, self.end = number, port, end
        self.rng = random.Random(number)
        self.scores: dict[str, float] = {}
        self.answers: dict[str, tuple[float, int]] = {}
        self.labels: dict[str, int] = {}
        self.retries = 0
        self.failure: str | None = None
        self.connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        try:
            while not self.end.is_set():
                self.turn()
            for id_ in self.answers:  # all of them once more
                self.predict([id_])
        except Exception as error:
            self.failure = repr(error)
            self.end.set()

    def turn(self) -> None:
        rng = self.rng
        start = len(self.scores)
        ids = [f"{self.number}-{start + i}" for i in range(rng.choice((1, 1, 1, BATCH)))]
        self.scores |= {id_: rng.random() for id_ in ids}
        self.predict(ids)
        waiting = [id_ for id_ in list(self.scores)[-60:] if id_ not in self.labels and rng.random() < 0.5]
        self.labels |= {id_: int(rng.random() < self.scores[id_] ** 2) for id_ in waiting}
        self.label(waiting)
        again = rng.sample(sorted(self.answers), min(3, len(self.answers)))
        self.predict(again)
        self.label([id_ for id_ in again if id_ in self.labels])

    def predict(self, ids: list[str]) -> None:
        events = [{"id": id_, "score": self.scores[id_], "key": f"k{hash(id_) % 3}"} for id_ in ids]
        for id_, answer in zip(ids, self.send("/v1/predictions", events), strict=True):
            given = answer["probability"], answer["map_version"]
            assert self.answers.setdefault(id_, given) == given, (id_, self.answers[id_], answer)

    def label(self, ids: list[str]) -> None:
        for answer in self.send("/v1/labels", [{"id": id_, "label": self.labels[id_]} for id_ in ids]):
            assert answer["outcome"] in ("joined", "duplicate"), answer

    def send(self, path: str, events: list[dict[str, object]]) -> list[dict[str, object]]:
        """Send events until they are answered."""
        if not events:
            return []
        while True:
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                if len(events) == 1:
                    status, answer = exchange(self.connection, "POST", path, events[0])
                    answer = [answer]
                else:
                    body = "\n".join(map(str, events)).replace("'", '"').encode()
                    status, answer = exchange(self.connection, "POST", path, body, LINES)
                if status == 200:
                    return answer
                assert status in (429, 503), (status, answer)
            except (OSError, http.client.HTTPException):
                self.connection = None
            self.retries += 1
            time.sleep(0.02)


def run(times: int, seed: int, longest: float = 2.0) -> str:
    """Kill a server so many times; return what was found."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.db"
        server = Served(store)
        end = Event()
        clients = [Client(number, server.port, end) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            for _ in range(times):
                time.sleep(rng.uniform(0.2, longest))
                server.stop(signal.SIGKILL)
                server = Served(store, port=server.port)
            time.sleep(0.5)
            end.set()
            for client in clients:
                client.join()
            _check(clients, server)
        finally:
            end.set()
            server.stop(signal.SIGKILL)
    ids, labels = (sum(len(of) for of in each) for each in _held(clients))
    retries = sum(client.retries for client in clients)
    return (
        f"killed {times} times: {ids:,} predictions and {labels:,} labels, {retries:,} requests were retried;"
        " every id was answered, answered again as before, and counted once"
    )


def _held(clients: list[Client]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return [client.answers for client in clients], [client.labels for client in clients]


def _check(clients: list[Client], server: Served) -> None:
    failures = [client.failure for client in clients if client.failure]
    assert not failures, failures
    assert all(client.answers.keys() == client.scores.keys() for client in clients)
    ids, labels = (sum(len(of) for of in each) for each in _held(clients))
    assert server.metric("streamcal_predictions_total") == ids
    assert server.metric("streamcal_join_outcomes_total", outcome="joined") == labels
    assert server.stop()[0] == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(run(asked.times, asked.seed))

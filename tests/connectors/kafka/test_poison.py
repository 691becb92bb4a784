"""Records that are no events: each is a reject that says where it is, and the run goes on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.connectors.kafka.clients import rows_of
from tests.connectors.kafka.fixtures import AnyBroker, Topics
from tests.connectors.kafka.topics import answered, prediction, put, streamcal, url

pytestmark = pytest.mark.usefixtures("quick_cluster")

POISON: dict[str, bytes | None] = {
    "nested": b"[" * 100_000,
    "nested in an unknown field": b'{"id":"n","score":0.5,"deep":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "many digits": b'{"id":"d","score":' + b"9" * 310 + b"}",
    "many digits of time": b'{"id":"t","score":0.5,"time":' + b"9" * 400 + b"}",
    "far away": b'{"id":"f","score":0.5,"time":1e300}',
    "no UTF-8": b'{"id":"\xff\xfe","score":0.5}',
    "empty": b"",
    "blank": b" ",
    "tombstone": None,
    "line breaks": b"\n\n\n",
    "zero bytes": b"\x00" * 100,
    "long id": b'{"id":"' + b"x" * 5000 + b'","score":0.5}',
    "no number": b'{"id":"q","score":NaN}',
    "large": b"x" * 900_000,
}


class TestPoison:
    def test_a_run_goes_on_behind_it_and_so_does_the_next(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path
    ) -> None:
        events, answers, rejects = new_topic("events"), new_topic("answers"), new_topic("rejects")
        values: list[bytes | None] = []
        for number, value in enumerate(POISON.values()):
            values += [prediction(number), value]
        put(kafka_broker, events, values)
        command = ["run", "--events", url(kafka_broker, events, "?until=end"), "--store", tmp_path / "s.db"]
        command += ["--output", url(kafka_broker, answers), "--rejects", url(kafka_broker, rejects)]
        done = streamcal(*command)
        assert done.returncode == 0, done.stderr
        put(kafka_broker, events, [b"[" * 100_000, prediction(100)])
        done = streamcal(*command)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert answered(kafka_broker, answers) == [*range(len(POISON)), 100]
        rows = [msgspec.json.decode(record.value) for record in rows_of(kafka_broker, rejects)]
        assert {row["source"] for row in rows} == {f"{events}/0"}
        assert [row["line"] for row in rows] == [*range(1, 2 * len(POISON), 2), 2 * len(POISON)]
        assert all(row["reason"] and len(row["raw"]) <= 4096 for row in rows)
        assert dict(zip(POISON, rows, strict=False))["tombstone"]["reason"] == "the record has no value"

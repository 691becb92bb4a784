"""Many classes over Kafka: events and answers are JSON, as in files."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.connectors.kafka.fixtures import AnyBroker, Topics
from tests.connectors.kafka.test_readme import PATIENCE, committed, send
from tests.forks import Fork
from tests.multiclass.test_run import CLASSES, events, read, run, write


def test_topics_hold_what_files_hold(kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path) -> None:
    given = events(200, 20)
    run(*CLASSES, "--events", write(tmp_path / "e.jsonl", given), "--output", tmp_path / "o.jsonl")
    topics = {name: f"kafka://{kafka_broker.bootstrap}/{new_topic(name)}" for name in ("events", "answers")}
    send(kafka_broker, topics["events"].rpartition("/")[2], given)
    store = ("--store", str(tmp_path / "s.db"))
    process = Fork(
        [*("run", *CLASSES, "--events", topics["events"], "--output", topics["answers"], *store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        answers = committed(kafka_broker, topics["answers"].rpartition("/")[2], 200, process)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, log
    assert answers == read(tmp_path / "o.jsonl")

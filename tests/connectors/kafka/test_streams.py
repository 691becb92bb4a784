"""Whole runs from topics to topics, stopped, killed and resumed in one process."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from tests.connectors.kafka.broker import Broker, free_ports
from tests.connectors.kafka.clients import rows_of, until
from tests.connectors.kafka.fixtures import AnyBroker, Topics
from tests.connectors.kafka.topics import answered, prediction, put, started, streamcal, url

pytestmark = pytest.mark.usefixtures("quick_cluster")


class DiedError(BaseException):
    """Stands for kill -9."""


class TestRun:
    @pytest.mark.parametrize("step", ["before the broker", "before the store", "after the store"])
    def test_dying_at_a_step_of_the_commit(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path, step: str
    ) -> None:
        """Between the broker's commit and the store's, the batch is replayed with its output suppressed."""
        events, labels = new_topic("events", 2), new_topic("labels")
        topics = new_topic("answers", 2), new_topic("rejects"), new_topic("maps")
        rng = random.Random(1)
        rows = [b'{"id":"%d","score":%.6f,"time":%d}' % (i, rng.random(), i) for i in range(300)]
        put(kafka_broker, events, rows[::2], 0)
        put(kafka_broker, events, rows[1::2], 1)
        put(kafka_broker, labels, [b'{"id":"%d","label":%d,"time":%d}' % (i, i % 2, i) for i in range(300)])
        put(kafka_broker, events, [b"oops"], 1)
        deaths = 0
        replayed: list[int] = []

        def drive(*, dies: bool) -> Pipeline:
            nonlocal deaths
            connectors = Connectors()
            store = connectors.store(str(tmp_path / "s.db"))
            pipeline = Pipeline()
            sources = [connectors.source(url(kafka_broker, topic)) for topic in (events, labels)]
            sinks: list[Any] = [connectors.sink(url(kafka_broker, topic)) for topic in topics]
            count = 0

            def dying(when: str, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
                def wrapped(argument: Any) -> Any:
                    nonlocal count
                    count += when == step
                    if dies and when == step and count == 3:
                        raise DiedError
                    return call(argument)

                return wrapped

            write = sinks[0].write
            sinks[0].write = lambda rows: (replayed.append(len(rows)), write(rows))
            sinks[0].commit = dying("before the broker", sinks[0].commit)
            for name in ("commit", "keep"):
                save = getattr(store, name)

                def saved(argument: Any, save: Any = save) -> Any:
                    dying("before the store", lambda _: None)(argument)
                    done = save(argument)
                    dying("after the store", lambda _: None)(argument)
                    return done

                setattr(store, name, saved)
            began = time.monotonic()

            runner = Runner(
                pipeline,
                Inputs([], sources),
                Outputs(*sinks),
                store,
                clock=time.monotonic,
                stop=lambda: pipeline.tally.events >= 601 or time.monotonic() - began > 60,
            )
            try:
                runner.run()
            except DiedError:
                deaths += 1
            finally:
                for each in (*sources, *sinks, store):
                    each.close()
            return pipeline

        import streamcal.run.runner

        streamcal.run.runner.MAX_EVENTS, before = 60, streamcal.run.runner.MAX_EVENTS  # type: ignore[misc]
        try:
            for _ in range(3):
                drive(dies=True)
            pipeline = drive(dies=False)
        finally:
            streamcal.run.runner.MAX_EVENTS = before  # type: ignore[misc]
        assert deaths == 3
        assert answered(kafka_broker, topics[0]) == list(range(300))
        (bad,) = rows_of(kafka_broker, topics[1])
        reject = msgspec.json.decode(bad.value)
        assert (reject["source"], reject["line"], reject["raw"]) == (f"{events}/1", 150, "oops")
        assert pipeline.join.counts.joined == 300
        published = [
            msgspec.json.decode(record.value)["version"] for record in rows_of(kafka_broker, topics[2])
        ]
        assert published == sorted(set(published))
        if step != "before the broker":  # what was on the broker was not written again
            assert sum(replayed) == 300

    def test_the_map_of_a_calibration_is_published_once(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path
    ) -> None:
        """Though its commit reads nothing: only what the transaction carries tells that it was done."""
        source, events = tmp_path / "source.jsonl", tmp_path / "events.jsonl"
        rng = random.Random(1)
        lines = (b'{"score":%.6f,"label":%d}\n' % (rng.random(), rng.randrange(2)) for _ in range(200))
        source.write_bytes(b"".join(lines))
        events.write_bytes(b"".join(prediction(i) + b"\n" for i in range(10)))
        topics = new_topic("answers"), new_topic("maps")
        dies = iter([True, True])
        for _ in range(3):
            connectors = Connectors()
            store = connectors.store(str(tmp_path / "s.db"))
            answers, maps = (connectors.sink(url(kafka_broker, topic)) for topic in topics)
            keep = store.commit

            def commit(change: Any, keep: Any = keep) -> None:
                if change.maps and next(dies, False):
                    raise DiedError
                keep(change)

            store.commit = commit  # type: ignore[method-assign]
            inputs = Inputs(
                [connectors.source(str(source), SourceOptions(domain="source"))],
                [connectors.source(str(events))],
            )
            outputs = Outputs(answers, maps=maps)
            runner = Runner(Pipeline(), inputs, outputs, store, clock=time.monotonic)
            with suppress(DiedError):
                runner.run()
            for each in (*inputs.calibration, *inputs.deployment, answers, maps, store):
                each.close()
        assert next(dies, None) is None
        assert answered(kafka_broker, topics[0]) == list(range(10))
        assert len(rows_of(kafka_broker, topics[1])) == 1

    def test_a_run_goes_on_with_the_other_client(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path
    ) -> None:
        """Positions, the ids of topics and the marks of transactions are those of the cluster."""
        events, answers = new_topic("events", 2), new_topic("answers", 2)
        command = ["run", "--events", url(kafka_broker, events, "?until=end"), "--store", tmp_path / "s.db"]
        command += ["--output", url(kafka_broker, answers)]
        for number, name in enumerate(("kafka-python", "confluent", "kafka-python")):
            put(kafka_broker, events, [prediction(10 * number + i) for i in range(10)], number % 2)
            done = streamcal(*command, STREAMCAL_KAFKA_LIBRARY=name)
            assert done.returncode == 0, done.stderr
            assert answered(kafka_broker, answers) == list(range(10 * number + 10))

    @pytest.mark.parametrize(
        ("away", "number", "status"), [("killed", signal.SIGTERM, 0), ("paused", signal.SIGINT, 130)]
    )
    def test_a_signal_while_a_commit_waits_for_the_broker(
        self,
        killable_broker: Broker,
        new_topic: Topics,
        tmp_path: Path,
        away: str,
        number: signal.Signals,
        status: int,
    ) -> None:
        """It ends before long; what it could not commit, the next run does, once."""
        answers = new_topic("answers")
        events, rejects = tmp_path / "events.jsonl", tmp_path / "rejects.jsonl"
        command = ["run", "--events", events, "--output", url(killable_broker, answers)]
        command += ["--rejects", rejects, "--store", tmp_path / "s.db"]

        def append(start: int, stop: int) -> None:
            with events.open("ab") as file:
                file.write(b"".join(prediction(i) + b"\n" for i in range(start, stop)) + b"oops\n")

        append(0, 10)
        with started(*command, "--follow") as (process, said):
            until(lambda: rejects.exists() and len(rejects.read_bytes().splitlines()) == 1, "no rejects")
            (killable_broker.kill if away == "killed" else killable_broker.pause)()
            append(10, 20)
            if away == "killed":
                until(lambda: "is away" in said(), "it does not notice")
            else:
                time.sleep(2.0)  # it waits for an answer
            begun = time.monotonic()
            process.send_signal(number)
            assert process.wait(60) == status, said()
            seconds = time.monotonic() - begun
            assert "what was committed is kept" in said()
            assert "Traceback" not in said()
        print(f"\n{away}: ended {seconds:.1f} s after {number.name}")
        assert seconds < 30
        if away == "killed":
            killable_broker.start()
        else:
            killable_broker.resume()
        done = streamcal(*command)
        assert done.returncode == 0, done.stderr
        assert answered(killable_broker, answers) == list(range(20))
        assert len(rejects.read_bytes().splitlines()) == 2

    @pytest.mark.slow
    def test_sigterm_while_it_waits_for_the_cluster_at_the_start(self, tmp_path: Path) -> None:
        nowhere = f"kafka://127.0.0.1:{free_ports(1)[0]}/events"
        with started("run", "--events", nowhere, "--output", tmp_path / "out.jsonl") as (process, said):
            until(lambda: "is away" in said(), "it does not notice")
            process.terminate()
            assert process.wait(20) == 0, said()

    @pytest.mark.slow
    def test_a_cluster_that_is_not_there(self, tmp_path: Path) -> None:
        nowhere = f"kafka://127.0.0.1:{free_ports(1)[0]}/events"
        done = streamcal(
            *("run", "--events", nowhere, "--output", tmp_path / "out.jsonl"),
            STREAMCAL_KAFKA_CONNECT_SECONDS="1",
        )
        assert done.returncode == 1
        assert done.stderr.count("is away") == 1
        assert "was away for 1 s" in done.stderr
        assert "Traceback" not in done.stderr

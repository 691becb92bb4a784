"""Records that were deleted before they were read: refused, or passed with an alarm, once, by --skip-lost."""

from __future__ import annotations

import json
import random
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from streamcal_connectors.kafka.source import KafkaConnector

from streamcal.run import journal, runner
from streamcal.run.connectors import Connectors
from streamcal.run.outcome import Lost
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.stored import stored_run
from tests.connectors.kafka.topics import BOTH, Kafka, ids, prediction, read, streamcal
from tests.dying import DiedError, driven

pytestmark = pytest.mark.usefixtures("quick_cluster")


def labelled(first: int, last: int) -> list[bytes | None]:
    """Return predictions with their labels, two records of each number, the labels 20 numbers later."""
    rng, rows = random.Random(first), list[bytes | None]()
    for n in range(first, last):
        rows.append(b'{"id":"%d","score":%.6f,"time":%d}' % (n, rng.random(), n))
        rows.append(b'{"id":"%d","label":%d,"time":%d}' % (n - 20, rng.random() < 0.5, n))
    return rows


def engine_of(path: Path) -> tuple[bytes, Any, Any]:
    """Return the engine in a store, the counts of its join, and what is lost."""
    with closing(Connectors().store(str(path), read_only=True)) as store:
        checkpoint = store.load()
        state = stored_run(checkpoint)
        return checkpoint.engines[None], state.pipeline.join.counts, state.pipeline.tally.lost


@pytest.mark.parametrize(
    ("client", "how"),
    [
        ("kafka-python", "deleted"),
        ("confluent", "made anew"),
        pytest.param("confluent", "deleted", marks=pytest.mark.nightly),
        pytest.param("kafka-python", "made anew", marks=pytest.mark.nightly),
    ],
    indirect=["client"],
)
def test_the_engine_is_as_if_the_lost_records_had_never_been(kafka: Kafka, tmp_path: Path, how: str) -> None:
    before, lost, after = labelled(0, 400), labelled(400, 600), labelled(600, 1000)

    def command(topic: str, name: str) -> list[Any]:
        answers, alarms = kafka.topic("answers"), kafka.topic("alarms")
        made = ["run", "--events", kafka.url(topic, "?until=end"), "--store", tmp_path / f"{name}.db"]
        return [*made, "--output", kafka.url(answers), "--alarms", kafka.url(alarms)]

    topic, other = kafka.topic("events"), kafka.topic("events")
    broken, whole = command(topic, "broken"), command(other, "whole")
    for name, made in ((topic, broken), (other, whole)):
        kafka.put(name, before)
        streamcal(*made, status=0)
    kafka.put(topic, lost)
    if how == "deleted":
        kafka.cut(topic, 1200)
    else:
        kafka.recreate(topic)
    kafka.put(topic, after)
    kafka.put(other, after)
    streamcal(*whole, status=0)
    refused = streamcal(*broken, status=1)
    assert "Or go on behind them with --skip-lost" in refused.stderr
    summary = tmp_path / "summary.json"
    for _ in range(2):  # the second time, nothing more is lost
        done = streamcal(*broken, "--skip-lost", "--summary", summary, status=0)
        place = f"{topic}/0"
        count = {"records": 400, "unknown": 0} if how == "deleted" else {"records": 0, "unknown": 1}
        found = json.loads(summary.read_text())
        assert found["lost"] == {place: count}
        assert f"Records of {place} were deleted before they were read" in found["remarks"][0]
        assert "records lost" in done.stdout
        (alarm,) = kafka.values(broken[-1].rpartition("/")[2])
        assert (alarm["code"], alarm["number"]) == ("lost_records", 1)
        assert ("up to 400" if how == "deleted" else "how many is unknown") in alarm["reason"]
    (engine, counts, _), (expected, those, none) = (
        engine_of(tmp_path / f"{n}.db") for n in ("broken", "whole")
    )
    assert engine == expected
    assert counts == those
    assert not none
    answered = [n for n in range(1000) if not 400 <= n < 600]
    assert kafka.answered(broken[6].rpartition("/")[2]) == answered


@pytest.mark.parametrize(
    ("step", "seconds"),
    [
        ("before the store", 1e9),
        ("after the store", 0.0),
        *(
            pytest.param(step, seconds, marks=pytest.mark.nightly)
            for step, seconds in [
                ("before the broker", 0.0),
                ("before the broker", 1e9),
                ("before the store", 0.0),
                ("after the store", 1e9),
            ]
        ),
    ],
)
def test_a_kill_at_any_step_neither_counts_nor_alarms_twice(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, seconds: float
) -> None:
    """After ``seconds`` the state is committed; until then the journal has batches whose records are lost."""
    monkeypatch.setattr(runner, "MAX_EVENTS", 50)
    monkeypatch.setattr(journal, "_SECONDS", seconds)
    monkeypatch.setattr(journal, "_SHARE", 0)
    events = kafka.topic("events")
    topics = kafka.topic("answers"), kafka.topic("rejects"), kafka.topic("maps"), kafka.topic("alarms")
    kafka.put(events, [prediction(n) for n in range(400)])

    def drive(dies_at: int = 0) -> Pipeline:
        """Run to the end, or die at this commit."""
        urls, source = [kafka.url(topic) for topic in topics], kafka.url(events, "?until=end")
        options = SourceOptions(skip_lost=True)
        return driven(tmp_path / "s.db", [source], urls, step, dies_at, options=options)

    with pytest.raises(DiedError):
        drive(dies_at=4)
    answered = kafka.answered(topics[0])
    assert 0 < len(answered) < 300
    kafka.cut(events, 300)
    for dies_at in (1, 2, 2, 3):
        with suppress(DiedError):  # some come to the end before that
            drive(dies_at)
    pipeline = drive()
    assert kafka.answered(topics[0]) == [*answered, *range(300, 400)]
    (alarm,) = kafka.values(topics[3])
    assert alarm["reason"].endswith(
        f"from offset {len(answered)} on, were deleted before they were read; reading went on at offset 300."
    )
    learned = pipeline.join.counts.predictions - 100  # of the state, before anything was lost
    assert pipeline.tally.lost == {f"{events}/0": Lost(300 - learned)}
    assert drive().tally.lost == pipeline.tally.lost


@BOTH
def test_a_source_goes_on_in_place(kafka: Kafka) -> None:
    """Records that vanish while it runs, or its topic, are lost to it as to one that starts."""
    topic = kafka.topic("events", 2)
    kafka.put(topic, [prediction(n) for n in range(10)])
    with closing(KafkaConnector().source(kafka.url(topic), SourceOptions(skip_lost=True))) as source:
        source.seek({})
        assert ids(read(source, 10)["0"]) == [*range(10)]
        for place in [*source._next]:
            source._opened().pause(place)
        kafka.put(topic, [prediction(n) for n in range(10, 30)])
        kafka.cut(topic, 20)
        for place in [*source._next]:
            source._opened().resume(place)
        gap, *events = read(source, 11)["0"]
        assert (gap.code, gap.fields) == ("lost_records", {"start": 10, "next": 20, "count": 10})
        assert ids(events) == [*range(20, 30)]
        kafka.recreate(topic, 2)
        kafka.put(topic, [prediction(n) for n in range(5)], 1)
        found = read(source, 7)
        assert [each.fields for each in found["0"]] == [{"start": 30, "next": 0}]
        assert ids(found["1"][1:]) == [*range(5)]


def test_a_run_goes_on_where_its_output_was_made_anew(kafka: Kafka, tmp_path: Path) -> None:
    """And behind partitions that were added while it was down, though it then writes nothing."""
    events, answers = kafka.topic("events"), kafka.topic("answers")
    command = ["run", "--events", kafka.url(events, "?until=end"), "--store", tmp_path / "s.db"]
    command += ["--output", kafka.url(answers)]
    kafka.put(events, [prediction(n) for n in range(10)])
    streamcal(*command, status=0)
    kafka.grow(events, 2)
    for _ in range(2):
        streamcal(*command, status=0)
    kafka.recreate(answers)
    kafka.put(events, [prediction(n) for n in range(10, 20)], 1)
    assert "Go on with --append" in streamcal(*command).stderr
    for first, options in ((20, ["--append"]), (30, [])):
        streamcal(*command, *options, status=0)
        assert kafka.answered(answers) == [*range(10, first)]
        kafka.put(events, [prediction(n) for n in range(first, first + 10)])

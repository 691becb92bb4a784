"""Streams with segments and of many classes: the answers and states of embedded engines, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamcal import Recalibrator
from streamcal.engine.emissions import Recalibrated
from streamcal.engine.stepping_c import step
from streamcal.events import LabelEvent, PredictionEvent
from streamcal.join.join import Join, JoinConfig
from streamcal.join.outcomes import Joined
from streamcal.maps.shift import NO_SHIFT
from tests.inside import labels_of
from tests.nightly import one_in

CLASSES = ("cat", "dog", "fox")
FIELDS = ("country", "tier")


def with_segments(events: pa.Table) -> pa.Table:
    """Give predictions two fields; the labels have none."""
    rows = events.to_pylist()
    for row in rows:
        number = int(row["id"][1:])
        predicted = row["score"] is not None
        row["country"] = [None, "NL", "o'PL", ""][number % 4] if predicted else None
        row["tier"] = number % 3 if predicted else None
    return pa.Table.from_pylist(
        rows, pa.schema([*events.schema, ("country", pa.string()), ("tier", pa.int8())])
    )


def with_classes(events: pa.Table) -> pa.Table:
    """Give predictions the scores of three classes in place of one."""
    rows = events.to_pylist()
    for row in rows:
        score, label = row.pop("score"), row["label"]
        row["scores"] = None if score is None else [0.6 * (1.0 - score), score, 0.4 * (1.0 - score)]
        fox = int(row["id"][1:]) % 3 == 0
        row["label"] = None if label is None else "dog" if label else "fox" if fox else "cat"
    return pa.Table.from_pylist(rows)


class Embedded:
    """One process with embedded engines, which answer all predictions of a micro-batch before they learn."""

    def __init__(self, made: Callable[[], Recalibrator], classes: int) -> None:
        self.join, self.made = Join(JoinConfig(label_ttl=600.0)), made
        self.join.classes = classes
        self.engines: dict[str | None, Recalibrator] = {}
        self.answers: dict[str, Any] = {}
        self._predictions: list[tuple[Any, bytes]] = []
        self._observed: dict[str | None, list[Any]] = {}
        self._learned: list[Joined] = []

    def take(self, part: pa.Table) -> None:
        """Take the events of a micro-batch, which are in order."""
        self._observed, self._learned = {}, []
        for row in part.to_pylist():
            given = row.get("score") if "score" in row else row["scores"]
            if given is None:
                label = row["label"]
                code = CLASSES.index(label) if label in CLASSES else int(label)
                event: Any = LabelEvent(row["id"], code, row["time"])
            else:
                kept = tuple(row["scores"]) if "scores" in row else tuple(row.get(name) for name in FIELDS)
                score = max(given) if "scores" in row else given
                event = PredictionEvent(row["id"], score, row["time"], row["key"], row["domain"], kept=kept)
            step(event, self.join, lambda _: self)
        for key in {*self._observed, *(each.key for each in self._learned)}:
            engine = self.engines[key]
            if observed := self._observed.get(key):
                scores, segments = map(list, zip(*observed, strict=True))
                engine.observe_many(scores, None if engine.by_segment is None else segments)
            for domain in ("source", "target"):
                its = [each for each in self._learned if (each.key, each.domain) == (key, domain)]
                told = [self._predictions[int(each.memo[0])] for each in its]
                if told:
                    scores, memos = zip(*told, strict=True)
                    labels = [each.label for each in its]
                    engine.learn_many(scores, labels, domain, memos=memos)

    # As a learner

    def answer(self, event: PredictionEvent) -> tuple[Recalibrated, int, tuple[float], tuple[()]]:
        engine = self.engines.setdefault(event.key, self.made())
        segments = None if engine.by_segment is None else event.kept
        given: Any = event.score if engine.by_class is None else list(event.kept)
        answers = engine.answer_many([given], segments and [segments], observes=False)
        self.answers[event.id] = answers.probabilities[0].tolist()
        self._predictions.append((given, answers.memos[0]))
        if event.domain == "target":
            self._observed.setdefault(event.key, []).append((given, segments))
        answer = Recalibrated(event.id, event.score, event.score, 0, NO_SHIFT, event.key, event.time)
        return answer, 0, (float(len(self._predictions) - 1),), ()

    def learn(self, joined: Joined) -> tuple[()]:
        self._learned.append(joined)
        return ()


@pytest.mark.parametrize("kind", one_in(2, ["classes", "segments"]))
def test_a_stream_answers_and_learns_what_embedded_engines_do(spark: Any, tmp_path: Path, kind: str) -> None:
    from streamcal.spark import Batch, read_state, recalibrate_stream
    from tests.spark.streams import run_to_the_end, write_files, write_stream

    folder, checkpoint = tmp_path / "events", str(tmp_path / "check point")
    folder.mkdir()
    events = write_stream(folder, 1_000, files=2)
    options: dict[str, Any] = {}
    if kind == "segments":
        events, options = with_segments(events), {"segments": FIELDS}
    elif kind == "classes":
        events, options = with_classes(events), {"classes": CLASSES}
    parts = write_files(folder, events, 2)
    embedded = Embedded(lambda: Recalibrator(own_engines=0, **options), 3 if kind == "classes" else 2)
    for part in parts:
        embedded.take(part)
    stream = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    written: dict[str, Any] = {}
    # The micro-batch whose first attempt fails after it was written; with classes, tests/spark/test_stream.py
    # alone has one, as each attempt takes seconds.
    failing = {1} if kind == "segments" else set()

    def write(batch: Batch) -> None:
        rows = batch.answers.toArrow().to_pylist()
        assert not batch.rejects.where("reason like '%must%'").count()
        if batch.number in failing:
            failing.clear()
            raise OSError("the disk is full")
        for row in rows:
            assert row["id"] not in written
            written[row["id"]] = row["probabilities"] if kind == "classes" else row["probability"]

    files = stream.option("maxFilesPerTrigger", 1).parquet(str(folder))
    options |= {"join": JoinConfig(label_ttl=600.0), "buckets": 2}
    run_to_the_end(
        lambda: recalibrate_stream(files, write, checkpoint, trigger={"availableNow": True}, **options),
        "the disk is full",
    )
    assert not failing
    assert written == embedded.answers
    state = read_state(spark, checkpoint)
    assert state.counts == embedded.join.counts
    assert {key: engine.to_bytes() for key, engine in state.engines.items()} == {
        key: engine.to_bytes() for key, engine in embedded.engines.items()
    }
    if kind == "segments":
        views = [each.by_segment for each in embedded.engines.values()]
        assert all(sum(view.labels.values()) == 6 for view in views if view)
        assert len({labels_of(each, "target").to_bytes() for each in embedded.engines.values()}) == 2
    moved = [np.abs(np.array(each) - 0.5).max() for each in written.values()]
    assert len(set(moved)) > len(moved) // 2  # not all are the score of a first engine
    other = options | {name: options[name][:-1] for name in ("segments", "classes") if name in options}
    with pytest.raises(ValueError, match=r"was begun with other options: (segments|classes|mode) \("):
        recalibrate_stream(stream.parquet(str(folder)), write, checkpoint, **other)

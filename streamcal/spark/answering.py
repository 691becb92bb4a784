"""Engines of a stream that answer in its buckets, and learn the labels themselves on the driver.

An engine whose state does not depend on the order of labels learns sketches, and its map answers. The others
judge each label by what was forecast at its prediction. So the buckets read the engines of the micro-batch
before, answer, and keep the memos with the predictions. The driver learns the labels one after the other: all
of the source, then those of the target, in the order of the events that joined them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.fs as pa_fs  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark import TaskContext

from streamcal.engine.calls import Calls
from streamcal.engine.config import EngineOptions
from streamcal.engine.recalibrator import Recalibrator, calls_of, engine_of, made_of
from streamcal.engine.stepping_c import refused
from streamcal.events import Domain, Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.codes import FieldError
from streamcal.sketch.decoding import decoded, encoded

ENGINES: Final = "streamcal.engines"
"""Property of the tasks of a micro-batch: the files that have the engines of the one before."""

_MOST_SEGMENTS: Final = 500_000  # of an engine: every Python worker holds them

Answered = tuple[list[float], bytes]
"""Scores, probabilities and version of an answer, and the memo of its prediction."""


class Learned(msgspec.Struct, array_like=True, gc=False):
    """A prediction that has met its label, and the event by which it did."""

    domain: Domain
    timed: bool
    time: float
    alone: bool
    id: str
    score: float
    label: int
    labelled_at: float | None
    memo: bytes

    @property
    def order(self) -> tuple[str, bool, float, bool, str]:
        """Position of the event among all of a micro-batch; labels are learned in this order."""
        return self.domain, self.timed, self.time, self.alone, self.id


class Engines(dict[str | None, Recalibrator]):
    """Engines by key, restored from their states when they are asked for; other keys have a new one."""

    def __init__(self, options: EngineOptions, states: dict[str | None, bytes]) -> None:
        super().__init__()
        self._options, self._states = options, states

    def __missing__(self, key: str | None) -> Recalibrator:
        state = self._states.get(key)
        found = made_of(self._options) if state is None else Recalibrator.from_bytes(state)
        self[key] = found
        return found


def event_of(columns: Sequence[Any], options: EngineOptions) -> Event:
    """Return the event of id, time, score, label, key, domain, and segments or scores as JSON.

    Raises
    ------
    ValueError
        if they are no event.
    """
    domain: Any
    id_, time, score, label, key, domain, given = columns
    kept: Any = () if given is None else tuple(json.loads(given))
    domain = "target" if domain is None else domain
    event: Event
    if score is None:
        if label is None:
            raise ValueError("an event needs a score or a label; NaN is none")
        event = LabelEvent(id_, label, time)
    elif label is None:
        event = PredictionEvent(id_, score, time, key, domain, kept=kept)
    else:
        event = LabelledEvent(score, label, id_, time, key, domain, kept=kept)
    event = _calls(options).event(event)
    if why := refused(event, options.config):
        raise FieldError(why.code, **why.fields)
    return event


def answer(engine: Recalibrator, events: Sequence[PredictionEvent | LabelledEvent]) -> list[Answered]:
    """Answer checked predictions; the engine stays as it is."""
    calls = calls_of(engine)
    rows = calls.of_events(events)
    answers, version = calls.answer(rows, observes=False), [float(engine.version)]
    scores = calls.scores(rows).reshape(len(events), -1).tolist()
    made = answers.probabilities.reshape(len(events), -1).tolist()
    return [
        (row + probabilities + version, memo)
        for row, probabilities, memo in zip(scores, made, answers.memos, strict=True)
    ]


def learn(engine: Recalibrator, observed: Sequence[tuple[float, bytes]], learned: list[Learned]) -> None:
    """Let an engine observe the target scores of a micro-batch, by score and memo, then learn its labels.

    Raises
    ------
    ValueError
        if it has too many segments then.
    """
    calls = calls_of(engine)
    if observed:
        scores, memos = zip(*observed, strict=True)
        calls.observe(calls.of_memos(np.array(scores), memos))
    for domain, group in groupby(learned, lambda found: found.domain):
        labels = list(group)
        its_memos = [found.memo for found in labels]
        rows = calls.of_memos(np.array([found.score for found in labels]), its_memos)
        codes = np.array([found.label for found in labels])
        times = np.array([found.labelled_at for found in labels]) if engine.config.needs_time else None
        calls.learn(rows, codes, domain, times, None, its_memos)
    view = engine.by_segment
    if view is not None and (segments := sum(view.labels.values())) > _MOST_SEGMENTS:
        raise ValueError(
            f"an engine has {segments:,} segments by {', '.join(view.fields)}; on Spark it may have"
            f" {_MOST_SEGMENTS:,}, which every Python worker holds: use fewer fields, or streamcal run"
        )


def engines_of_task(options: EngineOptions) -> Engines:
    """Return the engines that answer in the micro-batch of this task; a worker reads them once.

    Raises
    ------
    OSError
        if Python cannot read the checkpoint on this machine.
    """
    context = TaskContext.get()
    files = None if context is None else context.getLocalProperty(ENGINES)
    if files is None:
        raise RuntimeError(
            "a task of the stream does not know its engines: leave PYSPARK_PIN_THREAD as it is, and do not"
            " begin Spark jobs in threads of your own in write"
        )
    return _read(files, encoded(options))


@lru_cache(maxsize=1)
def _read(files: str, options: bytes) -> Engines:
    states: dict[str | None, bytes] = {}
    for uri in json.loads(files):
        try:
            filesystem, path = pa_fs.FileSystem.from_uri(uri.replace("s3a://", "s3://", 1))
            table = pq.read_table(path, columns=["told", "key", "state"], filesystem=filesystem)
        except (OSError, pa.ArrowInvalid) as error:
            raise OSError(
                f"an executor cannot read the engines in {uri}: {error}; with segments or classes, the"
                " checkpoint must be where Python reads it on every executor, such as a shared folder"
            ) from error
        states |= {row["key"]: row["state"] for row in table.to_pylist() if not row["told"]}
    return Engines(decoded(options, EngineOptions, "options"), states)


@lru_cache(maxsize=1)
def _calls(options: EngineOptions) -> Calls[Any]:
    return engine_of(options, None).calls()

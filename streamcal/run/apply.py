"""``streamcal apply``: apply maps from elsewhere to a stream of predictions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from pydantic import ValidationError

from streamcal.base.times import LIMIT, seconds_of
from streamcal.engine.multiclass.class_map import MulticlassMap
from streamcal.events import Kept, LabelEvent
from streamcal.events.blocks import Block
from streamcal.events.codes import Refusal
from streamcal.events.columns import Columns
from streamcal.events.fields import Malformed, OtherLabel
from streamcal.events.input_checks import InputChecks
from streamcal.maps.recalibration_map import RecalibrationMap, why_not_whole
from streamcal.run.added import Added
from streamcal.run.config import problems
from streamcal.run.kinds import Kind, kind_of
from streamcal.run.outputs import Outputs, writing
from streamcal.run.ports import Batch, Feed, Source
from streamcal.run.rows import AnswerColumns, Answers, MapRow, RejectRow, reject_row
from streamcal.run.runner import MAX_EVENTS, PATIENCE

_NO_WAIT: Final = 0.0

log = logging.getLogger("streamcal")


class Maps:
    """The maps to apply: one for all keys, or the newest that a run publishes of each (``--maps``)."""

    def __init__(self, source: RecalibrationMap | MulticlassMap | Feed) -> None:
        self._feed: Feed | None = None
        self._maps: dict[str | None, RecalibrationMap | MulticlassMap] = {}
        if isinstance(source, RecalibrationMap | MulticlassMap):
            self._maps[None] = source
        else:
            self._feed = source

    def update(self, timeout: float) -> bool:
        """Fetch new maps, waiting at most ``timeout`` seconds; return whether there is any map.

        Raises
        ------
        ValueError
            if a map is that of a run with segments.
        """
        newest: dict[str | None, MapRow] = {}
        for data in () if self._feed is None else self._feed.poll(timeout):
            try:
                row = msgspec.json.decode(data, type=MapRow)
            except (ValueError, RecursionError) as error:  # of msgspec, of UTF-8, of nesting
                log.warning("skipped a line of the maps that is not a map: %s", error)
                continue
            if row.segments:
                raise ValueError(why_not_whole(row.segments))
            newest[row.key] = row
        for key, row in newest.items():
            try:
                self._maps[key] = RecalibrationMap.model_validate_json(bytes(row.map))
            except ValidationError as error:
                wrong = "; ".join(problems(error, RecalibrationMap).splitlines())
                log.warning("skipped a line of the maps that is not a map: %s", wrong)
        return bool(self._maps)

    def get(self, key: str | None) -> RecalibrationMap | MulticlassMap | None:
        """Return the map for a key, or None if there is none yet."""
        return self._maps.get(None if self._feed is None else key)

    @property
    def description(self) -> str:
        """The versions that were applied, for the log."""
        return "map version " + ", ".join(
            f"{each.version}" if key is None else f"{each.version} [{key}]"
            for key, each in self._maps.items()
        )


def apply_maps(
    maps: Maps,
    source: Source,
    outputs: Outputs,
    stop: Callable[[], bool],
    after: Callable[[int, list[RejectRow]], None],
    added: Sequence[Added] = (),
    classes: Sequence[str] = (),
) -> tuple[int, int]:
    """Answer every prediction of a source with the newest map; return the number of answers and of rejects.

    Reads nothing before there is a map. ``after`` is called behind each batch, with the number of its events
    and its rejects. ``added`` are fields of the rows; ``classes`` those of a map of many.

    Raises
    ------
    OutputError
        if a sink fails.
    StoppedError
        if the run is to stop while a connector waits.
    OSError, ValueError
        if the source cannot be read at all, or a map is that of a run with segments; MeaningError if its
        scores are in percent.
    """
    answered = refused = 0
    for sink in outputs.sinks:
        with writing(sink):
            sink.resume("", None)
    while not maps.update(PATIENCE):
        if stop():
            return 0, 0
    source.seek({})
    meanings = InputChecks()
    kind = kind_of(classes)
    to_rows = kind.to_rows(added)
    while not stop() and not source.ended:
        batches = source.poll(MAX_EVENTS, PATIENCE)
        maps.update(_NO_WAIT)
        for batch in batches:
            rows, bad = _apply(maps, batch, meanings, kind, to_rows)
            meanings.events += len(batch.events)
            answered += len(rows)
            refused += len(bad)
            with writing(outputs.answers):
                outputs.answers.write(rows)
            if outputs.rejects is not None:
                with writing(outputs.rejects):
                    outputs.rejects.write(bad)
            for sink in outputs.sinks:
                with writing(sink):
                    sink.commit({})
            after(len(batch.events), bad)
    meanings.end(Columns())
    return answered, refused


def _apply_at_once(maps: Maps, block: Block) -> AnswerColumns | None:
    """Answer all predictions of a block; None if they are not all for one map, or not all to be answered."""
    found, scores, times = maps.get(None), block.scores, block.times
    plain = (
        not block.others and block.keys is None and not (np.isnan(scores) | (np.abs(times) >= LIMIT)).any()
    )
    if not isinstance(found, RecalibrationMap) or not plain:
        return None
    return AnswerColumns(
        block.ids,
        scores,
        found.predict_many(scores),
        None,
        times,
        [found.version],
        np.array([found.weights]),
        np.zeros(len(scores), np.intp),
        block.kept,
    )


def _apply(
    maps: Maps,
    batch: Batch,
    meanings: InputChecks,
    kind: Kind,
    to_rows: Callable[[AnswerColumns], AnswerColumns],
) -> tuple[Answers, list[RejectRow]]:
    if isinstance(batch.events, Block) and len(batch.events):
        columns = _apply_at_once(maps, batch.events)
        if columns is not None:
            return Answers(to_rows(columns)), []
    answers, kept, bad = list[Any](), list[Kept](), list[RejectRow]()
    for index, read in enumerate(batch.events):
        event = read.event if isinstance(read, OtherLabel) else read  # the label does not matter here
        if isinstance(event, Malformed):
            meanings.refused(event, index, batch.origin)
            why: Refusal = event
        elif isinstance(event, LabelEvent):
            why = Refusal("missing_field", {"sender": "a prediction", "needs": "a score"})
        elif (found := maps.get(event.key)) is None:
            why = Refusal("unknown_key", {"key": event.key})
        else:
            time = None if event.time is None else seconds_of(event.time)
            made, weights, *more = kind.applied(found, event)
            answers.append(
                kind.answer(event.id, event.score, made, found.version, weights, event.key, time, *more)
            )
            kept.append(event.kept)
            continue
        bad.append(reject_row(batch.origin(index), why))
    return Answers(*(map(to_rows, [AnswerColumns.of(answers, kept)] if answers else []))), bad

"""Calls of a user on an engine with segments, and a view of their corrections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from streamcal.base.values import Counts, Floats, Labels, shown
from streamcal.engine.calls import Calls
from streamcal.engine.engine import seen_in_call
from streamcal.engine.schedule import parts_of_call
from streamcal.engine.segments.corrections_c import TERMS, Name, codes_of, name_of, names_of
from streamcal.engine.segments.segment_map import segment_map
from streamcal.engine.segments.segments import Segments, listed, of_frame
from streamcal.engine.stepping_c import checked
from streamcal.events import Domain, Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch import checks

if TYPE_CHECKING:
    from streamcal.engine.segments.segmented_engine import SegmentedEngine

Rows = list[tuple[float, tuple[Name, ...]]]
"""Score, and value of each field, of each event."""


class SegmentCalls(Calls[Rows]):
    """Calls on an engine with segments: a score has the value of each field beside it."""

    def __init__(self, engine: SegmentedEngine) -> None:
        super().__init__(engine)
        self._fields = engine.segments.names

    def __str__(self) -> str:
        return f", segments={list(self._fields)}"

    # Inputs

    def one(self, score: Any, segments: Any, memo: bytes | None = None) -> Rows:
        """See `Calls.one`."""
        if memo is None and segments is None:  # forgotten; of all events it would be the same segment
            raise ValueError(
                f"segments must be given, a value for {' and '.join(self._fields)}: of a missing one, give"
                f" {(None,) * len(self._fields)}"
            )
        names = self._split(segments) if memo is None else self._of_memos([memo])[0]
        return [(checks.check_score(score), names)]

    def many(self, scores: Any, segments: Any, memos: Sequence[bytes] | None = None) -> Rows:
        """See `Calls.many`."""
        values = checks.as_scores(scores).tolist()
        if memos is None:
            coded = zip(*self._split_many(segments, len(values)), strict=True)
            names = [*zip(*(map(of.__getitem__, codes) for codes, of in coded), strict=True)]
        else:
            names = self._of_memos(memos)
        if len(names) != len(values):
            raise ValueError(f"{len(values)} scores but {len(names)} memos")
        return list(zip(values, names, strict=True))

    def of_events(self, events: Sequence[PredictionEvent | LabelledEvent]) -> Rows:
        """See `Calls.of_events`."""
        count = len(self._fields)
        return [(event.score, self._split(event.kept[:count])) for event in events]

    def of_memos(self, scores: Floats, memos: Sequence[bytes]) -> Rows:
        """See `Calls.of_memos`."""
        return list(zip(scores.tolist(), self._of_memos(memos), strict=True))

    def scores(self, rows: Rows) -> Floats:
        """See `Calls.scores`."""
        return np.array([score for score, _ in rows], np.float64)

    def event(self, event: Event) -> Event:
        """See `Calls.event`; of a prediction, the first values that it keeps are those of the fields."""
        event = checked(event)
        if event.weight not in (None, 1.0):
            raise ValueError(f"a label must not have a weight other than 1: {self.engine.why_unweighted}")
        if not isinstance(event, LabelEvent):
            self._split(event.kept[: len(self._fields)])
        return event

    def _parts(self, segments: object) -> Sequence[object]:
        """Return the value of each field; ValueError if there are not as many."""
        if not isinstance(segments, tuple | list):
            segments = (segments,)
        if len(segments) != len(self._fields):
            expected = f"a tuple of {len(self._fields)} values" if len(self._fields) > 1 else "one value"
            raise ValueError(
                f"segments must be {expected}, in the order {', '.join(self._fields)}, got {shown(segments)}"
            )
        return segments

    def _split(self, segments: object) -> tuple[Name, ...]:
        return tuple(map(name_of, self._parts(segments)))

    def _split_many(self, segments: Any, count: int) -> tuple[list[Counts], list[list[Name]]]:
        """Return the codes of the values of each field, int64[n], and the name of each code."""
        if isinstance(segments, str | bytes | Mapping | Set) or not hasattr(segments, "__len__"):
            raise ValueError(
                f"segments must be a sequence of one value or tuple a score, or a data frame, got"
                f" {shown(segments)}"
            )
        if len(segments) != count:
            raise ValueError(f"{count} scores but {len(segments)} segments")
        if hasattr(segments, "columns"):
            return _coded(of_frame(segments, self._fields, "segments"))
        if getattr(segments, "ndim", 1) == 2 and segments.shape[1] == len(self._fields):
            return _coded(segments.T)
        rows = listed(segments)
        if len(self._fields) == 1:
            with suppress(ValueError):  # if a value is a tuple, or is none
                return _coded([rows])
        return _coded(self._columns(rows))

    def _columns(self, rows: list[Any]) -> list[list[Any]]:
        """Return the values of each field."""
        count = len(self._fields)
        if not {*map(type, rows)} <= {tuple, list} or not {*map(len, rows)} <= {count}:
            rows = [*rows]
            for index, row in enumerate(rows):
                try:
                    rows[index] = self._parts(row)
                except ValueError as error:
                    raise ValueError(f"index {index}: {error}") from None
        return [[*map(itemgetter(field), rows)] for field in range(count)]

    def _of_memos(self, memos: Sequence[bytes]) -> list[tuple[Name, ...]]:
        """Return the value of each field of predictions, by their memos."""
        rest, count = self.split(memos)[1], len(self._fields)
        return list(zip(*(names_of(rest, count, field) for field in range(count)), strict=True))

    def refuses(self, memo: bytes) -> str | None:
        """See `Calls.refuses`."""
        fields = len(self._fields)
        width = 1 + TERMS * fields
        start = 8 * width
        if len(memo) < start + 2 * fields:
            return f"it has no forecast of {fields} fields"
        numbers = np.frombuffer(memo, np.float64, width)
        finite = np.isfinite(numbers)
        finite[TERMS - 1 :: TERMS] = True  # own engines, which not all have
        if not finite.all() or not 0.0 <= numbers[0] <= 1.0 or np.isinf(numbers).any():
            return "its forecast is not finite"
        if len(memo) != start + 2 * fields + np.frombuffer(memo, "<u2", fields, start).sum():
            return "its segments have another size"
        try:
            for field in range(fields):
                names_of([memo], fields, field)
        except UnicodeDecodeError as error:
            return str(error)
        return None

    # The engine

    def predict_many(self, scores: Any, segments: Any) -> Floats:
        """See `Calls.predict_many`."""
        values = checks.as_scores(scores)
        codes, names = self._split_many(segments, len(values))
        segments = self.engine.segments
        own = [*map(segments.own_served, names[0])] if segments.has_engines else None
        made: Floats = segments.corrections.forecast_many(self.engine.served, values, codes, names, own)
        return made

    def predict(self, rows: Rows) -> Floats:
        """See `Calls.predict`."""
        return self.forecast(rows)[0]

    def forecast(self, rows: Rows) -> tuple[Floats, list[bytes]]:
        """See `Calls.forecast`."""
        carry, pooled = self.engine.carry, self.engine.served.forecast
        made = [carry(names, score, pooled(score)) for score, names in rows]
        return np.array([probability for probability, _ in made], np.float64), [memo for _, memo in made]

    def observe(self, rows: Rows) -> None:
        """See `Calls.observe`."""
        self.engine.observe_many(self.scores(rows))

    def learn(
        self,
        rows: Rows,
        labels: Labels,
        domain: Domain,
        times: Floats | None,
        weights: Floats | None,
        memos: Sequence[bytes] | None,
    ) -> None:
        """See `Calls.learn`; labels of the source teach the pooled engine only."""
        engine, size = self.engine, len(rows)
        if domain == "source":
            engine.learn_many(self.scores(rows), labels, domain, times, None, weights)
            return
        known = engine.target.labels
        starts, indices, rest = parts_of_call(size, known), seen_in_call(size, known), list[bytes]()
        if memos is not None:
            starts, (indices, rest) = [0], self.split(memos)
        moments = [None] * size if times is None else times.tolist()
        counted = [1.0] * size if weights is None else weights.tolist()
        events = list(zip((score for score, _ in rows), labels.tolist(), moments, strict=True))
        for start, end in pairwise([*starts, size]):
            then = rest or self.forecast(rows[start:end])[1]
            for at, memo in enumerate(then, start):
                score, label, time = events[at]
                engine.learn_one(score, label, domain, time, int(indices[at]), counted[at], memo)


def _coded(columns: Iterable[Any]) -> tuple[list[Counts], list[list[Name]]]:
    """Return the codes of the values of each column, int64[n], and the name of each code."""
    codes, names = list[Counts](), list[list[Name]]()
    for column in columns:
        names.append([])
        if hasattr(column, "factorize") and column.dtype != object:
            places, values = column.factorize()  # of pandas; −1: missing
            known = np.append(codes_of(values.tolist(), names[-1]), codes_of([None], names[-1]))
            codes.append(known[places])
        else:
            codes.append(codes_of(listed(column), names[-1]))
    return codes, names


class SegmentView:
    """Corrections of segments: what is added to the logit of the pooled probability."""

    def __init__(self, engine: Any) -> None:  # a `SegmentedEngine`
        self._engine = engine
        self._segments: Segments = engine.segments

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields."""
        return self._segments.names

    @property
    def labels(self) -> dict[str, int]:
        """Number of values with labels, by field."""
        return dict(zip(self.fields, map(len, self._segments.corrections.fields), strict=True))

    def map_for(self, segments: object) -> RecalibrationMap:
        """Return one portable map for one segment: the map of all, then the corrections.

        It is what is served now, up to rounding, and has the version of the pooled map.

        Parameters
        ----------
        segments
            as in `Recalibrator.predict_one`.

        Raises
        ------
        ValueError
            if there are not as many values as fields, or the segment has an engine of its own, too.
        """
        names = self._engine.calls().one(0.5, segments)[0][1]
        return segment_map(self._engine.map, self._segments, names)

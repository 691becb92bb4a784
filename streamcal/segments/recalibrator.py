"""SegmentedRecalibrator: one pooled engine, and corrections by segment that share what they learn.

The served probability is expit(logit of the pooled probability + what each field adds). A segment without
labels is served the pooled probability, to the last bit. Memory: 64 bytes a segment and its name, and the
pooled engine; and ``own_engines`` further engines at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Self, cast

import msgspec
import numpy as np

from streamcal.engine.recalibrator import Recalibrator
from streamcal.engine.schedule import parts_of_call
from streamcal.engine.state import pack, unpack
from streamcal.events import Domain
from streamcal.join.entries import Memo
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.segments.fields_c import TERMS
from streamcal.segments.names_c import Name, name_of
from streamcal.segments.segment_map import segment_map
from streamcal.segments.segments import (
    SegmentCorrection,
    Segments,
    check_fields,
    check_own_engines,
    of_frame,
    packed,
    served,
    unpacked,
)
from streamcal.sketch import checks
from streamcal.sketch.decoding import restoring
from streamcal.times import as_times
from streamcal.values import Floats, check_domain, shown

__all__ = ["SegmentedRecalibrator"]


class SegmentedRecalibrator:
    """Turn scores into probabilities that are right in each segment, too, from its first label.

    Parameters
    ----------
    fields
        Names of the fields that make segments, such as ``("country", "device")``. Their corrections add up.
    pooled
        Engine that learns from all labels; it belongs to this object from now on. None: a new
        `Recalibrator` with default options.
    own_engines
        How many segments, those with most labels, may have an engine of their own: 0 to 65,536. Each takes
        up to a MiB of memory, and learning takes some ten times as long. With several fields none has one.

    Raises
    ------
    ValueError
        if there are no fields or more than 64, a name is empty or comes twice, or ``own_engines`` is
        out of range.

    Examples
    --------
    >>> engine = SegmentedRecalibrator(("country", "device"))
    >>> engine.predict_one(0.7, ("NL", None))
    0.7
    >>> engine.learn_many([0.3, 0.7] * 500, [0, 1] * 500, [("NL", "phone"), ("PL", None)] * 500)
    >>> engine.predict_one(0.7, ("PL", None)) > 0.9
    True
    """

    def __init__(
        self,
        fields: Sequence[str] = ("segment",),
        pooled: Recalibrator | None = None,
        *,
        own_engines: int = 64,
    ) -> None:
        self._names = check_fields(fields)
        self._pooled = Recalibrator() if pooled is None else _check_pooled(pooled)
        self._use(Segments(self._names, check_own_engines(own_engines)))

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {count:,}" for name, count in self.segments.items())
        return f"SegmentedRecalibrator({counts}; pooled={self._pooled!r})"

    # What it knows

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields."""
        return self._names

    @property
    def pooled(self) -> Recalibrator:
        """Engine that learns from all labels."""
        return self._pooled

    @property
    def segments(self) -> dict[str, int]:
        """Number of values with labels, by field."""
        counts = map(len, self._segments.corrections.fields)
        return dict(zip(self._names, counts, strict=True))

    @property
    def spread(self) -> dict[str, tuple[float, float, float]]:
        """Standard deviations of offsets and slopes between segments, and the probability that they differ.

        By field; the deviations are on the logit, and hold where segments differ at all.
        """
        between = [field.between for field in self._segments.corrections.fields]
        found = [(each.offset_precision**-0.5, each.slope_precision**-0.5, each.share) for each in between]
        return dict(zip(self._names, found, strict=True))

    @property
    def centre(self) -> float:
        """Logit of the pooled probability at which slopes add nothing."""
        return self._segments.corrections.centre

    @property
    def farthest(self) -> float:
        """Distance of the logit from the centre, beyond which slopes add no more."""
        return self._segments.corrections.farthest

    def corrections(self) -> list[SegmentCorrection]:
        """Return a row for each segment with labels: what is added to the logit of the pooled probability.

        Raises
        ------
        ValueError
            if a segment has an engine of its own: a row does not say what that adds.
        """
        rows = self._segments.table()
        for row in rows:
            if len(self._names) == 1 and self._segments.has_own((row.segment,)):
                raise ValueError(
                    f"segment {shown(row.segment)} has an engine of its own, which no row can say; with"
                    " own_engines=0 there is none"
                )
        return rows

    # Predicting

    def predict_one(self, score: float, segments: object) -> float:
        """Return the probability in [0, 1] of one score.

        Parameters
        ----------
        score
            a number in [0, 1].
        segments
            value of each field, as a tuple in their order; of one field, the value alone will do. A value is
            a text, a number or a boolean; None, NaN and an empty text are one value: the field is missing.

        Raises
        ------
        ValueError
            if the score is not a number in [0, 1], or there are not as many values as fields.
        """
        names = self._split(segments)
        return served(self._forecast(checks.check_score(score), names))

    def predict_many(self, scores: Any, segments: Any) -> Floats:
        """Return the probability of every score, float64[n], as n calls of `predict_one` would.

        Parameters
        ----------
        scores
            array-like of length n.
        segments
            n values or tuples, as in `predict_one`; or a data frame with a column for each field.

        Raises
        ------
        ValueError
            as `predict_one`, with the index of the first bad value; or if the lengths differ.
        """
        return self.probabilities(self.forecast_many(scores, segments))

    def map_for(self, segments: object) -> RecalibrationMap:
        """Return one portable map for one segment: the map of all, then the corrections.

        It is what is served now, up to rounding, and has the version of the pooled map.

        Parameters
        ----------
        segments
            as in `predict_one`.

        Raises
        ------
        ValueError
            if there are not as many values as fields, or the segment has an engine of its own, too.
        """
        return segment_map(self._pooled.map, self._segments, self._split(segments))

    def forecast_many(self, scores: Any, segments: Any) -> Floats:
        """Return what is forecast now, for `learn_many` to judge by when late labels come.

        Returns
        -------
        Forecasts, float64[n, 1 + 5 F] of F fields: the pooled probability; then for each field what it adds
        to the logit, what its candidates would: ``slow``, ``fast`` and ``own``, NaN where there is none, and
        the number of labels of its value.

        Raises
        ------
        ValueError
            as `predict_many`.
        """
        values = checks.as_scores(scores)
        return self._forecasts(values, self._split_many(segments, len(values)))

    def probabilities(self, forecasts: Floats) -> Floats:
        """Return the probabilities of forecasts that `forecast_many` returned, float64[n]."""
        checked = self._check_forecasts(forecasts, len(forecasts))
        return np.array([served(row) for row in checked.tolist()], np.float64)

    # Learning

    def observe_many(self, scores: Any, segments: Any) -> None:
        """Observe n target scores whose labels are not known (yet), as `Recalibrator.observe_many` does.

        Raises
        ------
        ValueError
            as `predict_many`; nothing is noted then.
        """
        values = checks.as_scores(scores)
        self._split_many(segments, len(values))
        self._pooled.observe_many(values)

    def learn_one(
        self,
        score: float,
        label: int,
        segments: object,
        domain: Domain = "target",
        *,
        time: Any = None,
        prediction_index: int | None = None,
        forecast: Floats | None = None,
        positive: object = None,
    ) -> None:
        """Learn one score with its label.

        Parameters
        ----------
        score, label, domain, time, prediction_index, positive
            as in `Recalibrator.learn_one`.
        segments
            as in `predict_one`.
        forecast
            for a late label: its row of `forecast_many`, as of the prediction. None: the label came at once.

        Raises
        ------
        ValueError
            as `Recalibrator.learn_one` and `predict_one`; nothing is learned then.
        """
        value, known = checks.check_score(score), checks.check_label(label, positive)
        names = self._split(segments)
        row = self._forecast(value, names)
        if forecast is not None:
            row = self._check_forecasts(np.asarray(forecast)[np.newaxis], 1)[0].tolist()
        check_domain(domain)
        self._learn_one(value, known, names, row, domain, time, prediction_index)

    def learn_many(
        self,
        scores: Any,
        labels: Any,
        segments: Any,
        domain: Domain = "target",
        *,
        times: Any = None,
        prediction_index: int | None = None,
        forecasts: Floats | None = None,
        positive: object = None,
    ) -> None:
        """Learn n scores with their labels.

        With ``forecasts``, corrections are the same as by n calls of `learn_one` with the same forecasts; own
        engines learn the labels of a call at a time, as `Recalibrator.learn_many` does.
        Without, labels of one call were predicted just before it, and in n calls each is predicted after the
        label before; a call that brings more labels than there were is taken in parts, each as long as all
        before. The pooled engine differs only where `Recalibrator.learn_many` does.

        Labels of the source teach the pooled engine only.

        Parameters
        ----------
        scores, labels, domain, times, prediction_index, positive
            as in `Recalibrator.learn_many`.
        segments
            as in `predict_many`.
        forecasts
            for late labels: their rows of `forecast_many`, as of the prediction, float64[n, 1 + 5 F]. None:
            they were predicted just before this call.

        Raises
        ------
        ValueError
            as `learn_one`, with the index of the first bad value, or if lengths differ; nothing is learned
            then.
        """
        values, known = checks.as_scores(scores), checks.as_labels(labels, positive)
        if len(values) != len(known):
            raise ValueError(f"{len(values)} scores but {len(known)} labels")
        names = self._split_many(segments, len(values))
        moments = None if times is None else as_times(times, len(values))
        check_domain(domain)
        if domain == "source" or forecasts is not None or prediction_index is not None:
            ends = [len(values)]
        else:
            ends = [*parts_of_call(len(values), self._pooled.target.labels)[1:], len(values)]
        given = None if forecasts is None else self._check_forecasts(forecasts, len(values))
        release = self._pooled._engine.release
        start = 0
        for end in ends:
            part = slice(start, end)
            start = end
            if domain == "target" and release is not None and release.holds:
                each = zip(values[part].tolist(), known[part].tolist(), names[part], strict=True)
                each_row = self._forecasts(values[part], names[part]) if given is None else given[part]
                for i, (score, label, its) in enumerate(each):
                    moment = None if moments is None else float(moments[part][i])
                    self._learn_one(score, label, its, each_row[i].tolist(), domain, moment, prediction_index)
                continue
            rows = None
            if domain == "target":
                rows = self._forecasts(values[part], names[part]) if given is None else given[part]
            self._pooled.learn_many(
                values[part],
                known[part],
                domain,
                times=None if moments is None else moments[part],
                prediction_index=prediction_index,
            )
            if rows is not None:
                self._segments.learn(values[part].tolist(), known[part].tolist(), names[part], rows.tolist())

    # State

    def to_bytes(self) -> bytes:
        """Return the whole state; equal states give equal bytes."""
        return pack([self._pooled.to_bytes(), *packed(self._segments.to_state())])

    def __reduce__(self) -> tuple[Callable[[bytes], SegmentedRecalibrator], tuple[bytes]]:
        """Copy and pickle by way of `to_bytes`."""
        return type(self).from_bytes, (self.to_bytes(),)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore from `to_bytes`; safe on bytes from anywhere.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state; the message says what is wrong.
        """
        pooled, *parts = unpack(data, 3)
        state = unpacked(*parts)
        with restoring("not the state of segments"):
            segments = Segments.restored(state)
            restored = cls(state.names, Recalibrator.from_bytes(pooled))
            restored._use(segments)
        return restored

    # Inside

    def _use(self, segments: Segments) -> None:
        """Let the pooled engine hand over labels that it has held, with their segments."""
        engine = self._pooled._engine
        self._segments, engine.on_memo = segments, self._learn_memo
        if engine.release is not None:
            engine.release.excludes = False  # of such predictions no segments are known

    def _learn_one(
        self,
        score: float,
        label: int,
        names: tuple[Name, ...],
        row: list[float],
        domain: Domain,
        time: Any,
        prediction_index: int | None,
    ) -> None:
        """Learn a checked score with its label, now or when the pooled engine learns it."""
        kept = msgspec.msgpack.encode((names, row)) if domain == "target" else None
        self._pooled._learn_one(score, label, domain, time, prediction_index, None, kept)

    def _learn_memo(self, score: float, label: int, memo: Memo) -> None:
        names, row = msgspec.msgpack.decode(cast(bytes, memo))
        self._segments.learn([score], [label], [names], [row])

    def _forecast(self, score: float, names: tuple[Name, ...]) -> list[float]:
        return self._segments.forecast(score, self._pooled.predict_one(score), names)

    def _forecasts(self, scores: Floats, names: Sequence[tuple[Name, ...]]) -> Floats:
        pooled = self._pooled.predict_many(scores).tolist()
        rows = [self._segments.forecast(*event) for event in zip(scores.tolist(), pooled, names, strict=True)]
        return np.array(rows, np.float64).reshape(len(rows), self._segments.width)

    def _check_forecasts(self, forecasts: Any, count: int) -> Floats:
        rows = np.asarray(forecasts, np.float64)
        if rows.shape != (count, self._segments.width):
            raise ValueError(
                f"forecasts must have the shape ({count}, {self._segments.width}), as forecast_many returns"
                f" them, got {rows.shape}"
            )
        finite = np.isfinite(rows)
        finite[:, TERMS - 1 :: TERMS] = True  # own engines, which not all have
        if not finite.all() or not ((rows[:, 0] >= 0.0) & (rows[:, 0] <= 1.0)).all():
            raise ValueError("forecasts must be as forecast_many returned them")
        return rows

    def _split(self, segments: object) -> tuple[Name, ...]:
        if not isinstance(segments, tuple | list):
            segments = (segments,)
        if len(segments) != len(self._names):
            expected = f"a tuple of {len(self._names)} values" if len(self._names) > 1 else "one value"
            raise ValueError(
                f"segments must be {expected}, in the order {', '.join(self._names)}, got {shown(segments)}"
            )
        return tuple(map(name_of, segments))

    def _split_many(self, segments: Any, count: int) -> list[tuple[Name, ...]]:
        if hasattr(segments, "columns"):
            segments = of_frame(segments, self._names, "segments")
        if isinstance(segments, str | bytes | Mapping | Set) or not hasattr(segments, "__len__"):
            raise ValueError(
                f"segments must be a sequence of one value or tuple a score, or a data frame, got"
                f" {shown(segments)}"
            )
        if len(segments) != count:
            raise ValueError(f"{count} scores but {len(segments)} segments")
        values = segments.tolist() if hasattr(segments, "tolist") else list(segments)
        known: dict[Any, tuple[Name, ...]] = {}
        out = []
        for index, value in enumerate(values):
            try:
                names = known.get((type(value), value))
            except TypeError:  # not hashable, such as a list
                names = None
            if names is None:
                try:
                    names = self._split(value)
                except ValueError as error:
                    raise ValueError(f"index {index}: {error}") from None
                if not isinstance(value, tuple | list):
                    known[type(value), value] = names
            out.append(names)
        return out


def _check_pooled(pooled: object) -> Recalibrator:
    if not isinstance(pooled, Recalibrator):
        raise TypeError(f"pooled must be a Recalibrator, got {shown(pooled)}")
    return pooled

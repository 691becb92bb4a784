"""SegmentedEngine: the engine of one key of a run whose events have segments.

The pooled engine is what it is without segments, with the same maps and certificates. What is answered is the
corrected probability. The join keeps the segments of a prediction with its forecast, so that corrections are
judged as of the prediction, however late its label comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, Self

import msgspec

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.emissions import Emission, Recalibrated
from streamcal.engine.engine import Engine
from streamcal.engine.state import unpack
from streamcal.events import LabelledEvent, PredictionEvent
from streamcal.segments.segment_rules_c import SegmentRules
from streamcal.segments.segments import Segments, packed, unpacked
from streamcal.segments.stored_rows import StoredRows
from streamcal.sketch.decoding import restoring

__all__ = ["SegmentedEngine"]


class SegmentsOptions(Protocol):
    """Options of segments, see `streamcal.run.config.SegmentsConfig`."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields."""

    @property
    def own_engines(self) -> int:
        """Number of segments that may have an engine of their own."""


class SegmentedEngine(SegmentRules, Engine):
    """Pooled engine with corrections; made by `make`."""

    _rows: StoredRows | None = None
    _of: str | None = None

    @classmethod
    def make(
        cls,
        config: RecalibratorConfig,
        key: str | None,
        segments: SegmentsOptions,
        places: Sequence[int],
        data: bytes | None = None,
        rows: StoredRows | None = None,
    ) -> Self:
        """Return the engine of a key.

        Parameters
        ----------
        config, key
            As of `streamcal.engine.event_rules_c.EventRules`.
        segments
            Options of the segments of the run.
        places
            Index of each field among the values that an event keeps.
        data
            State of such an engine; None: a new one.
        rows
            What a store has of its corrections; None: there is no store.

        Raises
        ------
        DamagedStateError
            If the bytes are no such state.
        ValueError
            If they are of other fields.
        """
        read_row = None if rows is None else partial(rows.read, key)
        if data is None:
            made = cls(config, key)
            own = Segments(segments.fields, segments.own_engines, read_row)
        else:
            made = cls.from_bytes(data, key)
            state = unpacked(*unpack(data, 4)[2:])
            with restoring("not the state of segments"):
                own = Segments.restored(state, read_row)
            if own.names != tuple(segments.fields):
                raise ValueError(
                    f"the stored engine has segments by {', '.join(own.names)}, not by"
                    f" {', '.join(segments.fields)}: give these, or begin with a new store"
                )
        made.begin(own, places)
        made._rows, made._of = rows, key
        return made

    def parts(self) -> list[bytes]:
        """Return the parts of the state: those of the pooled engine, and the segments."""
        if self._rows is not None:
            self._rows.take(self._of, self.segments.corrections.fields)
        return [*super().parts(), *packed(self.segments.to_state())]

    # A prediction

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, tuple[Emission, ...]]:
        """Answer with the corrected probability; see `EventRules.answer`."""
        answer, prediction_index, emissions = super().answer(event)
        corrected = self.correct(event.kept, event.score, answer.probability)
        return msgspec.structs.replace(answer, probability=corrected), prediction_index, emissions

    # A label

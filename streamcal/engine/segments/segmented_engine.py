"""SegmentedEngine: the engine of one key of a run whose events have segments.

The pooled engine is what it is without segments, with the same maps and certificates. What is answered is the
corrected probability. The join keeps the segments of a prediction with its forecast, so that corrections are
judged as of the prediction, however late its label comes.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from streamcal.engine.config import EngineOptions
from streamcal.engine.engine import Engine
from streamcal.engine.segments.calls import SegmentCalls, SegmentView
from streamcal.engine.segments.corrections_c import SegmentRules
from streamcal.engine.segments.segments import Segments, packed, unpacked
from streamcal.engine.segments.stored_rows import StoredRows
from streamcal.engine.state import unpack
from streamcal.sketch.decoding import require, restoring


class SegmentedEngine(SegmentRules, Engine):
    """Pooled engine with corrections; made by `make`."""

    _rows: StoredRows | None = None
    _of: str | None = None

    @classmethod
    def make(
        cls, options: EngineOptions, key: str | None, data: bytes | None = None, rows: Any = None
    ) -> Self:
        """Return the engine of a key, see `Engine.make`; ``rows`` are `StoredRows`."""
        read_row = None if rows is None else partial(rows.read, key)
        if data is None:
            made = cls(options.config, key)
            own = Segments(options.fields, options.own_engines, read_row)
        else:
            made = cls.from_bytes(data, key)
            state = unpacked(*unpack(data, 4)[2:])
            with restoring("not the state of segments"):
                own = Segments.restored(state, read_row)
                require(own.names == options.fields, "those of other fields")
        made.begin(own, options.places)
        made._rows, made._of = rows, key
        return made

    @property
    def by_segment(self) -> SegmentView:
        """Corrections of segments."""
        return SegmentView(self)

    @property
    def why_unsketched(self) -> str:
        """See `Engine.why_unsketched`."""
        return "its labels have no segments"

    @property
    def why_unweighted(self) -> str:
        """See `Engine.why_unweighted`."""
        return "corrections of segments take every label once"

    def calls(self) -> SegmentCalls:
        """See `Engine.calls`."""
        return SegmentCalls(self)

    def parts(self) -> list[bytes]:
        """Return the parts of the state: those of the pooled engine, and the segments."""
        if self._rows is not None:
            self._rows.take(self._of, self.segments.corrections.fields)
        return [*super().parts(), *packed(self.segments.to_state())]

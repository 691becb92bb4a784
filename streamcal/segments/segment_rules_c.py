"""SegmentRules: what segments add to the rules of an engine for one prediction and one label.

Compiled where there is a C compiler; `segment_rules_c.pxd` has the types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamcal.engine import event_rules_c
from streamcal.events import Kept
from streamcal.segments.fields_c import names_of
from streamcal.segments.names_c import Name, name_of
from streamcal.segments.own import WORTH
from streamcal.segments.segments import Segments

__all__ = ["SegmentRules"]

_WORTH = WORTH


class SegmentRules(event_rules_c.EventRules):
    """Rules of an engine with segments; `streamcal.segments.segmented_engine` adds those for many, and state.

    `segments` are the corrections and own engines.
    """

    segments: Segments

    def begin(self, segments: Segments, places: Sequence[int]) -> None:
        """Begin with segments, and the index of each field among the values that an event keeps."""
        self.segments, self._fields, self._has_own = segments, segments.corrections, segments.has_engines
        self._places = list(places)
        self.carries = True
        if self.release is not None:
            self.release.excludes = False  # of predictions without a label, nothing was kept

    def learn_usual(
        self,
        score: object,  # noqa: ARG002
        label: object,  # noqa: ARG002
        domain: object,  # noqa: ARG002
        time: object,  # noqa: ARG002
        weight: object,  # noqa: ARG002
        memo: object,  # noqa: ARG002
        positive: object,  # noqa: ARG002
    ) -> bool:
        """Learn nothing: a label has segments."""
        return False

    def carry(self, kept: Kept, score: float, probability: float) -> tuple[float, bytes]:
        """Return the corrected probability of a score, and its segments with the forecast of each field."""
        names = list[Name]()
        for place in self._places:
            names.append(name_of(kept[place]) if place < len(kept) else None)
        forecast = self._fields.forecast(probability, names, None)
        if self._has_own and self._fields.labels >= _WORTH:
            forecast = self.segments.carry(score, probability, names, forecast)
        return self._fields.served, forecast

    def learn_memo(self, score: float, label: int, memo: Any) -> None:
        """Let corrections learn a label of the target."""
        self._fields.learn(label, memo)
        if self._has_own and self._fields.labels >= _WORTH:
            self.segments.learn_own(names_of([memo], 1, 0)[0], score, label)

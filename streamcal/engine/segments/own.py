"""Own engines of the few segments that have most labels.

An engine takes some hundred KiB, a correction 64 bytes. An own engine learns from the scores of its segment
alone, so it follows what no line on the pooled logit can: segments whose maps have other shapes, or that
change on their own. It forecasts once it has learned 100 labels.

To write an engine takes some ms, and with a store each commit asks for all that have learned. So the state of
such a run has them as they were up to 127 labels ago, and these labels.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.engine import Engine
from streamcal.engine.event_rules_c import ServedMap
from streamcal.engine.segments.corrections_c import WORTH, order
from streamcal.sketch.decoding import Count, Probability

_FEWEST: Final = 100  # labels from which an engine forecasts
_WRITTEN: Final = 128  # labels after which an engine is written anew
_GROWTH: Final = 16.0

Segment = tuple[int, str | None]
"""Number of the field, and its value."""


Learned = tuple[Probability, Annotated[int, msgspec.Meta(ge=0, le=1)]]
"""Score and label."""


class OwnState(msgspec.Struct, omit_defaults=True):
    """State of one engine."""

    field: Count
    name: str | None
    engine: Annotated[bytes, msgspec.Meta(min_length=1)]
    since: Annotated[list[Learned], msgspec.Meta(max_length=_WRITTEN - 1)] = []
    """Labels that it has learned since it was written."""


class OwnEngines:
    """Engines by segment, at most ``limit``.

    Parameters
    ----------
    logs
        whether states are asked for all the time, after labels that come one by one.
    """

    __slots__ = ("_engines", "_limit", "_states")

    def __init__(self, limit: int, *, logs: bool = False) -> None:
        self._limit = limit
        self._engines: dict[Segment, Engine] = {}
        self._states: dict[Segment, OwnState] | None = {} if logs else None

    def __len__(self) -> int:
        return len(self._engines)

    def served(self, segment: Segment) -> ServedMap | None:
        """Return the map that a segment's own engine serves; None if it has none that forecasts."""
        engine = self._engines.get(segment)
        return None if engine is None or self._labels(segment) < _FEWEST else engine.served

    def learn(self, segment: Segment, score: float, label: int, labels: int) -> Segment | None:
        """Learn a label of a segment, which now has so many ``labels``.

        Returns
        -------
        A segment whose engine has made room for this one; None: there is none.
        """
        gone = None
        if segment not in self._engines:
            if labels < WORTH or not self._limit:
                return None
            if len(self._engines) >= self._limit:
                if labels & (labels - 1):  # looked at when labels have doubled
                    return None
                gone = self._smallest()
                if 2 * self._labels(gone) >= labels:
                    return None
                del self._engines[gone]
                if self._states is not None:
                    del self._states[gone]
            self._engines[segment] = _rarely(Engine(RecalibratorConfig()))
            self._write(segment)
        self._take(segment, score, label)
        return gone

    def _take(self, segment: Segment, score: float, label: int) -> None:
        """Learn one label."""
        self._engines[segment].learn_one(score, label, "target", None, None, 1.0)
        if self._states is not None:
            since = self._states[segment].since
            since.append((score, label))
            if len(since) == _WRITTEN:
                self._write(segment)

    def _write(self, segment: Segment) -> None:
        """Write an engine as a whole, if states are asked for all the time."""
        if self._states is not None:
            self._states[segment] = self._whole(segment)

    def _whole(self, segment: Segment) -> OwnState:
        return OwnState(*segment, self._engines[segment].to_bytes())

    def _smallest(self) -> Segment:
        """Return the segment whose engine has fewest labels; of several, the first by name."""
        return min(self._engines, key=lambda each: (self._labels(each), _order(each)))

    def _labels(self, segment: Segment) -> int:
        """Return how many labels the engine of a segment has learned."""
        labels: int = self._engines[segment]._target.n
        return labels

    # State

    def to_state(self) -> list[OwnState]:
        """Return the state."""
        segments = sorted(self._engines, key=_order)
        if self._states is None:
            return [*map(self._whole, segments)]
        return [self._states[segment] for segment in segments]

    def restore(self, state: list[OwnState]) -> None:
        """Set the state; raise ValueError if it cannot be one."""
        self._engines = {(each.field, each.name): _rarely(Engine.from_bytes(each.engine)) for each in state}
        for each in state:
            self._write((each.field, each.name))
            for score, label in each.since:
                self._take((each.field, each.name), score, label)


def _rarely(engine: Engine) -> Engine:
    """Return an engine that rarely forms what only certificates read: nobody asks it for one."""
    engine.reform_by(_GROWTH)
    return engine


def _order(segment: Segment) -> tuple[int, tuple[bool, str]]:
    """Return what segments are sorted by."""
    return segment[0], order(segment[1])

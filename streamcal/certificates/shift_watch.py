"""Watching a stream for signs that label shift, the assumption behind g, does not hold."""

from __future__ import annotations

from array import array
from typing import Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.certificates.e_process import LabelShiftTest
from streamcal.errors import DamagedStateError
from streamcal.maps.binning import uniform_mass
from streamcal.sketch.grid import LAST_KEY, MIN_LEVEL, left_edges
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["LabelShiftWatch"]

Counts = npt.NDArray[np.int64]

_BINS: Final = 8
_FIRST_LOOK: Final = 256  # target scores that the first bins are chosen from
_LOOK_EVERY: Final = 64  # labels, or 5 % of those there are, if that is more
_LOOK_GROWTH: Final = 1.05
_LOOK_MOST: Final = 4096  # labels: an alarm is to come as soon after a drift late in a stream
_BLOCK: Final = 8192  # single labels are gathered before they are sorted into bins


class _State(msgspec.Struct):
    refuted: bool
    labels: int
    next_look: int
    cells: list[int]
    test: dict[str, Any] | None


class LabelShiftWatch:
    """Feeds target labels to the e-process against label shift, and looks at it now and then.

    While label shift holds with a prior that is constant between restarts, it alarms with probability at
    most α over the whole life (lemma 14 of docs/certificates.md). Its bins are chosen from target scores
    that came before, at a level of the grid that ``max_cells`` alone decides, so that they owe nothing to
    the source sample nor to the labels they will see.

    Parameters
    ----------
    alpha
        α in (0, 1).
    max_cells
        that of the sketches it will be shown.
    """

    __slots__ = (
        "_alpha",
        "_cells",
        "_classes",
        "_labels",
        "_level",
        "_next_look",
        "_scores",
        "_test",
        "refuted",
    )

    def __init__(self, alpha: float, max_cells: int) -> None:
        self._alpha = alpha
        self._level = MIN_LEVEL
        while LAST_KEY >> self._level >= max_cells:
            self._level += 1
        self._labels = 0
        self._next_look = _FIRST_LOOK
        self._cells = np.empty(0, np.int32)  # where the bins after the first begin
        self._test: LabelShiftTest | None = None
        self._scores = array("d")
        self._classes = bytearray()
        self.refuted = False
        """Whether it has alarmed; it then stays so."""

    @property
    def log_e(self) -> float | None:
        """The log of the e-value as of the last look; None before the first."""
        return None if self._test is None else self._test.log_e()

    @property
    def due(self) -> bool:
        """Whether there are enough new labels for another look."""
        return self._labels >= self._next_look

    def add(self, score: float, label: int) -> None:
        """Take one target label with its score."""
        self._labels += 1
        self._scores.append(score)
        self._classes.append(label)
        if len(self._classes) >= _BLOCK:
            self._count()

    def extend(self, scores: npt.NDArray[np.float64], labels: npt.NDArray[np.int8]) -> None:
        """Take target labels with their scores: float64[n], int8[n]."""
        self._labels += len(labels)
        self._scores.frombytes(scores.tobytes())
        self._classes += labels.tobytes()
        self._count()

    def look(self, source: ScoreSketch, target: ScoreSketch) -> bool:
        """Look at the e-value now; return whether this is the alarm.

        Parameters
        ----------
        source, target
            all labelled scores of either domain, for a restart.
        """
        stride = max(_LOOK_EVERY, int(self._labels * (_LOOK_GROWTH - 1.0)))
        self._next_look = self._labels + min(stride, _LOOK_MOST)
        self._count()
        if self.refuted or not source.n:
            return False
        if self._test is None:
            self._test = LabelShiftTest(*self._source_counts(source, target), self._alpha)
            return False
        self.refuted = self._test.alarm()
        if not self.refuted and self._test.due:
            self._test.restart(*self._source_counts(source, target))
        return self.refuted

    def _count(self) -> None:
        """Sort the buffer into the test's bins; before there is a test, its labels are not for it.

        They go with the scores that the first bins are chosen from.
        """
        scores, labels = np.frombuffer(self._scores), np.frombuffer(self._classes, np.int8)
        self._scores, self._classes = array("d"), bytearray()
        if self.refuted or self._test is None:
            return
        edges = left_edges(self._cells, self._level)
        places = np.searchsorted(edges, scores, side="right")
        self._test.update_many(_bincount(places, labels == 0, edges), _bincount(places, labels == 1, edges))

    def _source_counts(self, source: ScoreSketch, target: ScoreSketch) -> tuple[Counts, Counts]:
        """Choose the bins anew from the target's scores, and count the source's labels in them."""
        seen = target.at_level(self._level)
        splits = uniform_mass(seen.totals, _BINS)
        self._cells = seen.cells[splits[1:-1] - 1] + np.int32(1)
        known = source.at_level(self._level)
        places = np.searchsorted(self._cells, known.cells, side="right")
        bins = np.arange(len(self._cells) + 1)
        negatives, positives = known.counts @ (places[:, None] == bins)
        return negatives, positives

    def to_bytes(self) -> bytes:
        """Return the state as JSON; equal states give equal bytes."""
        self._count()
        test = None if self._test is None else self._test.to_dict()
        return msgspec.json.encode(
            _State(self.refuted, self._labels, self._next_look, self._cells.tolist(), test)
        )

    def restore(self, data: bytes) -> Self:
        """Take on the state that `to_bytes` gave.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        try:
            state = msgspec.json.decode(data, type=_State)
            self._test = None if state.test is None else LabelShiftTest.from_dict(state.test)
            self._cells = np.array(state.cells, np.int32)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise DamagedStateError(f"not the state of a label-shift watch: {error}") from None
        self.refuted, self._labels, self._next_look = state.refuted, state.labels, state.next_look
        return self


def _bincount(
    places: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_], edges: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    return np.bincount(places[chosen], minlength=len(edges) + 1).astype(np.int64)

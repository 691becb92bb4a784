"""A block of events through join and engines: a loop over the rules of one event.

The common case is a new prediction with which nothing is due, or a label that meets its prediction. The loop
ends before any other event: `streamcal.engine.stepping_c.step` takes it. It also ends where something
expires, and behind one that begins something.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.engine.emissions import Emission
from streamcal.engine.engine import Engine
from streamcal.engine.event_rules_c import EventRules
from streamcal.events.blocks import Block
from streamcal.join.entries import Memo
from streamcal.join.id_table_c import LABELLED
from streamcal.join.join_c import Join
from streamcal.join.rules_c import DONE, JoinRules
from streamcal.sketch.weighing import ONE
from streamcal.values import Counts, Floats

__all__ = ["AT_MOST", "BlockSteps", "Taken"]

AT_MOST: Final = 8192
"""Number of events taken at a time: the next ones use the same memory again."""

END, EVENT, BEGUN, EXPIRES = 0, 1, 2, 3
"""Reasons why the loop ends: at the end, before an event for `step`, behind one that has begun something,
before an event by whose time something expires."""

# As C has them.
_END, _EVENT, _BEGUN, _EXPIRES = END, EVENT, BEGUN, EXPIRES
_DONE, _LABELLED, _ONE = DONE, LABELLED, ONE
_UNKNOWN: Final = -1
_NO_TIME: Final = float("-inf")


class Taken(NamedTuple):
    """Events of a block that were taken, and their results."""

    end: int
    """Index of the event behind them."""
    is_event: bool
    """Whether that event is one for `step`."""
    expires: bool
    """Whether something expires by its time, which is to be handled before it."""
    at: Counts
    """Indices of the events that are predictions."""
    probabilities: Floats
    versions: list[int]
    """Versions of the maps that answered, one for each of `weights`."""
    weights: Floats
    """Weights of the shift correction, float64[m, 2]."""
    which: npt.NDArray[np.intp]
    """Index of its version and weights for each prediction."""
    ends: Counts
    """Indices of the events that are labels which met their prediction."""
    scores: Floats
    """Scores of the predictions that these labels met."""
    forecasts: Floats
    """Probabilities that were answered for these predictions."""
    predicted_at: Floats
    """Event times of these predictions in seconds; NaN if there is none."""
    keys: Sequence[str | None]
    """Keys of these predictions."""
    memos: Sequence[Memo]
    """Values that engines kept with these predictions, where these keep any."""
    emissions: tuple[Emission, ...]
    """Emissions of the last event."""


class BlockSteps:
    """A loop over the events of blocks.

    Parameters
    ----------
    join
        the join that matches labels with predictions.
    engine_of
        function that returns the engine of a known key; an engine may be put away when another is asked for.
    known
        keys that have an engine.
    """

    def __init__(
        self, join: Join, engine_of: Callable[[str | None], Engine], known: Container[str | None]
    ) -> None:
        self.join, self._engine_of, self._known = join, engine_of, known
        self._rows: JoinRules = join.rows
        self._renumbered = 0
        # Of predictions: which event, the number of version and weights. Of labels: which event, the key.
        self._whole = np.empty((4, AT_MOST), np.int64)
        # Of predictions: the probability. Of labels: score, forecast, and time of the prediction.
        self._real = np.empty((4, AT_MOST))
        self._weights = np.empty((AT_MOST, 2))
        self._engine: EventRules | None = None
        self._code = _UNKNOWN

    def begin(self, block: Block) -> None:
        """Begin with a block of events in the order of arrival."""
        self._block = block
        size, ids, rows = len(block), block.ids, self._rows
        odd = np.zeros(size if block.others or block.keys else 0, np.bool_)
        if block.others:
            odd[list(block.others)] = True
        codes = np.zeros(0, np.int32)
        if block.keys is not None:
            # A key that nothing is known of gets a number once it was admitted, in the next block.
            some = [key for key in dict.fromkeys(block.keys) if key in self._known]
            numbers = {key: rows.code_of(key) for key in some}
            if rows.renumbered != self._renumbered:
                numbers = {key: rows.code_of(key) for key in some}
            codes = np.array([numbers.get(key, _UNKNOWN) for key in block.keys], np.int32)
            odd |= (codes == _UNKNOWN) & ~np.isnan(block.scores)
        self._renumbered = rows.renumbered
        self._ids = ids.data.tobytes()
        # As memoryviews, whose elements are plain numbers in Python, too.
        columns = ids.starts, ids.sizes, block.scores, block.labels, block.times, codes, odd.view(np.uint8)
        views: list[Any] = [np.ascontiguousarray(column).data for column in columns]
        self._starts, self._sizes, self._scores, self._labels, self._times, self._codes, self._odd = views
        self._kept = block.kept
        self._is_target = block.domain == "target"

    def take(self, at: int) -> Taken:
        """Take events from one on; results and state are the same as with `step` for each."""
        block, rows = self._block, self._rows
        if rows.renumbered != self._renumbered:
            self.begin(block)
        self._predictions = self._joins = 0
        self._versions, self._memos = list[int](), list[Memo]()
        self._emissions: tuple[Emission, ...] = ()
        self._engine, self._code = None, _UNKNOWN
        self._at = at
        why = self._loop(min(at + AT_MOST, len(block)))
        self._engine = None
        counts = self.join.counts
        counts.predictions += self._predictions
        counts.labels += self._joins
        counts.joined += self._joins
        whole, real = np.asarray(self._whole), np.asarray(self._real)
        predictions, joins = slice(self._predictions), slice(self._joins)
        names = rows.names
        return Taken(
            self._at,
            why == EVENT,
            why == EXPIRES,
            whole[0, predictions],
            real[0, predictions].copy(),
            self._versions,
            np.asarray(self._weights)[: len(self._versions)].copy(),
            whole[1, predictions].astype(np.intp),
            whole[2, joins],
            real[1, joins],
            real[2, joins],
            real[3, joins],
            [names[code] for code in whole[3, joins].tolist()],
            self._memos,
            self._emissions,
        )

    def _loop(self, end: int) -> int:
        """Take events in turn until this one; return the reason why the loop ended."""
        rows, ids, is_target = self._rows, self._ids, self._is_target
        at, has_odd, has_codes = self._at, len(self._odd) > 0, len(self._codes) > 0
        predictions = joins = run = 0
        weights: tuple[float, float] | None = None
        version, answered = -1, None  # of the latest prediction
        memo: Memo | None = None
        begun: tuple[Emission, ...] = ()
        why = _END
        while at < end:
            score, label, size, time = self._scores[at], self._labels[at], self._sizes[at], self._times[at]
            is_prediction = score == score
            if (has_odd and self._odd[at]) or (
                is_prediction and not self._find_engine(self._codes[at] if has_codes else 0)
            ):
                why = _EVENT
                break
            if rows.move(time) and rows.expire() != _DONE:
                why = _EXPIRES
                break
            row = rows.row_of(ids, self._starts[at], size) if size else 0
            if is_prediction:
                if row:
                    why = _EVENT
                    break
            elif not row or not rows.waits_plainly(row, is_target) or not self._find_engine(rows.key_of(row)):
                why = _EVENT
                break
            engine, begun = self._engine, ()
            if is_prediction:
                prediction_index = engine._unlabelled.n  # type: ignore[union-attr]
                served = engine.served  # type: ignore[union-attr]
                probability, memo = served.forecast(score), None
                if engine.carries:  # type: ignore[union-attr]
                    kept = () if self._kept is None else self._kept[at]
                    probability, memo = engine.carry(kept, score, probability)  # type: ignore[union-attr]
                if engine is not answered or served.version != version or served.weights_now() is not weights:
                    answered, version, weights = engine, served.version, served.weights_now()
                    run = len(self._versions)
                    self._versions.append(version)
                    self._weights[run, 0] = weights[0]
                    self._weights[run, 1] = weights[1]
                if is_target:
                    begun = engine.observe_one(score, time)  # type: ignore[union-attr]
                if size:
                    row = rows.new_row(ids, self._starts[at], size)
                    code = self._code
                    rows.hold(
                        row, score, probability, time, prediction_index, is_target, code, None, None, memo
                    )
                self._whole[0, predictions] = at
                self._whole[1, predictions] = run
                self._real[0, predictions] = probability
                predictions += 1
            if label >= 0:
                predicted_at = time
                if row:
                    score, probability = rows.score_of(row), rows.forecast_of(row)
                    predicted_at, prediction_index = rows.time_of(row), rows.prediction_index_of(row)
                    memo = rows.memo_of(row)
                    rows.settle(row, _LABELLED + label)
                self._whole[2, joins] = at
                self._whole[3, joins] = self._code
                self._real[1, joins] = score
                self._real[2, joins] = probability
                self._real[3, joins] = predicted_at
                joins += 1
                if memo is not None:
                    self._memos.append(memo)
                latest = time if time == time else _NO_TIME
                learned = engine.learn_label(score, label, is_target, latest, prediction_index, _ONE, memo)  # type: ignore[union-attr]
                begun = begun + learned if learned else begun
            at += 1
            if begun:
                self._emissions = begun
                why = _BEGUN
                break
        self._predictions, self._joins, self._at = predictions, joins, at
        return why

    def _find_engine(self, code: int) -> bool:
        """Find the engine of the key with this number; return whether it has one."""
        if code != self._code:
            key = self._rows.names[code]
            if key not in self._known:
                return False
            self._engine, self._code = self._engine_of(key), code
        return True

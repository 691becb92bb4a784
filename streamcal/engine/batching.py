"""A block of events through join and engines.

The join's loop (`streamcal.join.rules_c.JoinRules.take`) takes events until something is due in an engine,
or expires, or an event is not of the common case: that is for `streamcal.engine.stepping_c.step`. Then the
engines answer the predictions that it took, and learn its labels.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.blocks import Block
from streamcal.engine.emissions import Emission
from streamcal.engine.engine import Engine
from streamcal.events import DOMAINS
from streamcal.join.join import Join
from streamcal.join.outcomes import Joined
from streamcal.join.rules_c import ASKS, DUE, EVENT, EXPIRES
from streamcal.sketch.arrays import Counts, Labels, Scores

__all__ = ["AT_MOST", "BlockSteps", "Taken"]

AT_MOST: Final = 8192
"""So many events are taken at a time: what that takes of memory is used again for the next."""

_UNKNOWN: Final = -1
_NEW_KEYS: Final = 1024  # that may come in a block before it is begun anew
_ANY: Final = 1 << 62

Indices = npt.NDArray[np.int64]


class Taken(NamedTuple):
    """Some events of a block, taken."""

    end: int
    """The event behind them."""
    is_event: bool
    """Whether that is one for `step`."""
    expires: bool
    """Whether by its time something expires, which is to be taken before it."""
    at: Indices
    """Which events are predictions."""
    probabilities: Scores
    versions: list[int]
    """Those of the maps that answered; one for each of the weights."""
    weights: Scores
    """Those of the shift correction, float64[m, 2]."""
    which: npt.NDArray[np.intp]
    """Of each prediction, the number of its version and weights."""
    ends: Indices
    """Which events are labels that met their prediction …"""
    scores: Scores
    """… whose score this is …"""
    forecasts: Scores
    """… and what was forecast …"""
    predicted_at: Scores
    """… at this event time, NaN: none …"""
    keys: Sequence[str | None]
    """… for this key."""
    emissions: tuple[Emission, ...]
    """What came of the last label."""


class BlockSteps:
    """Takes the events of blocks.

    Parameters
    ----------
    join
        matches labels with predictions.
    engine_of
        gives the engine of a key that is known; what it gave may be put away when another is asked for.
    known
        the keys that have an engine.
    """

    def __init__(
        self, join: Join, engine_of: Callable[[str | None], Engine], known: Container[str | None]
    ) -> None:
        self._join, self._engine_of, self._known = join, engine_of, known
        self._renumbered = 0
        self._whole, self._real = np.empty((5, AT_MOST), np.int64), np.empty((3, AT_MOST))

    def begin(self, block: Block) -> None:
        """Begin with a block of events in the order of arrival."""
        self._block = block
        size, ids, rows = len(block), block.ids, self._join.rows
        strange = block.others, block.domains, block.keys
        odd = np.zeros(size if any(strange) or block.weights is not None else 0, np.bool_)
        if block.others:
            odd[list(block.others)] = True
        if block.domains is not None:
            odd |= [domain != block.domain for domain in block.domains]
        if block.weights is not None:
            odd |= ~np.isnan(block.weights)
        self._codes = np.zeros(0, np.int32)
        if block.keys is not None:
            # A key that nothing is known of gets a number once it was admitted, in the next block.
            some = [key for key in dict.fromkeys(block.keys) if key in self._known]
            codes = {key: rows.code_of(key) for key in some}
            if rows.renumbered != self._renumbered:
                codes = {key: rows.code_of(key) for key in some}
            self._codes = np.array([codes.get(key, _UNKNOWN) for key in block.keys], np.int32)
            odd |= (self._codes == _UNKNOWN) & ~np.isnan(block.scores)
        self._renumbered = rows.renumbered
        self._limits = np.full(2 * (len(rows.names) + _NEW_KEYS), _UNKNOWN, np.int64)
        columns = (
            ids.starts,
            ids.sizes,
            block.scores,
            block.labels,
            block.times,
            odd.view(np.uint8),
            self._codes,
        )
        self._columns: tuple[Any, ...] = (
            ids.data.tobytes(),
            *(np.ascontiguousarray(column).data for column in columns),
            DOMAINS.index(block.domain),
            *(column.data for column in (self._limits, self._whole, self._real)),
        )

    def take(self, at: int) -> Taken:
        """Take events from one on; what comes out of them and the state are those of `step` for each."""
        block, rows, domain = self._block, self._join.rows, self._block.domain
        if rows.renumbered != self._renumbered or 2 * len(rows.names) > len(self._limits):
            self.begin(block)
        limits = self._limits
        asked = list[int]()
        rows.predictions, rows.joins, rows.at = 0, 0, at
        end = min(at + AT_MOST, len(block))
        while (why := rows.take(rows.at, end, *self._columns)) == ASKS:
            code = rows.asked
            asked.append(code)
            key = rows.names[code]
            labels, predictions = self._engine_of(key).room(domain) if key in self._known else (0, 0)
            limits[2 * code] = labels + 1
            limits[2 * code + 1] = _ANY if predictions is None else predictions
        for code in asked:
            limits[2 * code] = _UNKNOWN
        whole, real = self._whole[:, : rows.predictions], self._real[:, : rows.joins]
        at_, (ends, before, codes) = whole[0], self._whole[2:, : rows.joins]
        groups = self._groups(at_, codes, asked)
        scores, labels_of = block.scores[at_], block.labels[ends]
        probabilities, seen = np.empty(len(at_)), np.empty(len(at_), np.int64)
        which, versions, weights = np.empty(len(at_), np.intp), list[int](), list[Scores]()
        for key, mine, learned in groups:
            if not len(at_[mine]):
                continue
            joined = np.searchsorted(ends[learned], at_[mine])
            ones = np.concatenate(([0], np.cumsum(labels_of[learned], dtype=np.int64)))[joined]
            answers = self._engine_of(key).answer_many(scores[mine], domain, joined, ones)
            probabilities[mine], seen[mine] = answers.probabilities, answers.seen
            which[mine] = answers.which + len(versions)
            versions += [answers.version] * len(answers.weights)
            weights.append(answers.weights)
        rows.answer(whole[1].data, probabilities.data, seen.data)
        own = before < 0
        if own.any():
            numbers = -1 - before[own]
            before[own], real[1, own] = seen[numbers], probabilities[numbers]
        counts = self._join.counts
        counts.predictions += len(at_)
        counts.labels += len(ends)
        counts.joined += len(ends)
        emissions = tuple[Emission, ...]()
        for key, _, learned in groups:
            emissions += self._learn(
                key,
                ends[learned],
                real[:, learned],
                before[learned],
                labels_of[learned],
                is_due=why == DUE and len(ends) > 0 and rows.names[codes[-1]] == key,
            )
        return Taken(
            rows.at,
            why == EVENT,
            why == EXPIRES,
            at_,
            probabilities,
            versions,
            np.concatenate(weights) if weights else np.zeros((0, 2)),
            which,
            ends,
            real[0],
            real[1],
            real[2],
            [rows.names[code] for code in codes.tolist()],
            emissions,
        )

    def _groups(self, at: Indices, codes: Indices, asked: list[int]) -> list[tuple[str | None, Any, Any]]:
        """Return the keys, with the numbers of the predictions and labels of each."""
        names, keys = self._join.rows.names, self._codes
        if len(asked) == 1:
            return [(names[asked[0]], slice(None), slice(None))]
        predicted = keys[at] if len(keys) else np.zeros(len(at), np.int32)
        return [(names[code], predicted == code, codes == code) for code in asked]

    def _learn(
        self, key: str | None, ends: Indices, real: Scores, seen: Counts, labels: Labels, *, is_due: bool
    ) -> tuple[Emission, ...]:
        """Let an engine learn labels; return what comes of the last one, if something is due with it."""
        if not len(ends):
            return ()
        engine, domain, times = self._engine_of(key), self._block.domain, self._block.times[ends]
        free = len(ends) - is_due
        if free:
            latest = float(np.fmax.reduce(times[:free]))
            time = None if latest != latest else latest
            engine.learn_joined(real[0, :free], labels[:free], domain, time, seen[:free])
        if not is_due:
            return ()
        score, probability, predicted_at = real[:, -1].tolist()
        before, time = (None if each != each else each for each in (predicted_at, float(times[-1])))
        label = int(labels[-1])
        return engine.learn(Joined(score, probability, label, domain, before, time, int(seen[-1]), key))

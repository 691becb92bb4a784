"""ManyRules: how the engine of three classes or more forecasts in mode ``auto``, and learns a label.

Labels wait until a step is due, which moves weights and scalings. Compiled where there is a C compiler;
`many_c.pxd` has the types.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.multiclass.mixing import ClassWeights
from streamcal.multiclass.one_vs_rest_c import OneVsRest
from streamcal.multiclass.rows_c import count, gather, mix, normalise
from streamcal.multiclass.softmax_c import OnlineSoftmax, scale_each
from streamcal.values import Counts, Floats

__all__ = ["RECENT", "STEP", "ManyRules"]

STEP: Final = 32
"""Labels of the longest step, where they come one by one."""
RECENT: Final = 1.0 - 1.0 / 300.0
"""Discount of the labels of the more recent prior."""

# As C has them.
_STEP, _RECENT = STEP, RECENT
_BLOCK = 64  # labels of a step of one call
_FIRST_STEP = 4
_SCALED = 2  # place of the first scaling; the score and the row of the engines are before it


class ManyRules:
    """The rules for a prediction and a label; `streamcal.multiclass.many.Many` adds the modes, and state.

    Parameters
    ----------
    classes, candidates
        K and M. One candidate is served as it is, and no labels wait for a step.
    engines
        K binary engines.
    weights
        weights of the candidates.
    scalings, stacked
        scalings of the score, and of the engines' row.
    shared
        place of the candidate that gives classes without an engine their probability.
    carries
        whether late labels carry what the candidates forecast.
    """

    def __init__(
        self,
        classes: int,
        candidates: int,
        engines: OneVsRest,
        weights: ClassWeights,
        scalings: list[OnlineSoftmax],
        stacked: list[OnlineSoftmax],
        shared: int,
        *,
        carries: bool,
    ) -> None:
        self._classes, self._candidates, self._carries = classes, candidates, carries
        self._engines, self._weights, self._shared = engines, weights, shared
        self._of_score, self._stacked = scalings, stacked
        self.sourced = False
        """Whether labels of the source have been learned."""
        self.labels = 0
        """Number of target labels learned."""
        self._weighed = np.zeros(2)
        # One row and its forecasts, until they change: a label that comes at once was predicted just now.
        self._row = np.zeros(classes)
        self._made: Floats = np.empty((candidates + 1 + bool(stacked), 1, classes))
        self._fresh = False
        # Numbers kept of a label that waits: logs of score and engines' row, losses, share, delay.
        self._width = 2 * classes + 2 * candidates + 4
        self._await(np.empty(0), np.empty(0, np.int64))
        self._use(np.zeros((3, classes)))

    def _use(self, counts: Floats) -> None:
        """Use these counts, and the present arrays of weights."""
        self._counts, self._target_counts = counts, counts[1:]
        self._served: Floats = self._weights.served

    def _await(self, pending: Floats, codes: Counts) -> None:
        """Let labels wait for the next step: what `gather` has put for all, and their classes."""
        self._waiting = len(codes)
        self._pending, self._pending_codes = pending.reshape(len(codes), self._width).copy(), codes.copy()

    def _awaited(self) -> tuple[Floats, Counts]:
        """Return what `_await` takes, of all labels that wait."""
        waiting = self._waiting
        return np.array(self._pending[:waiting]).ravel(), np.array(self._pending_codes[:waiting])

    # A prediction

    def _made_of(self, rows: Floats) -> Floats:
        """Return what each candidate forecasts now, float64[M + 1 or M + 2, n, K].

        The logarithms of the score are behind them, and those of the engines' row if it is scaled.
        """
        if rows.shape[0] != 1:
            made: Floats = np.empty((self._made.shape[0], rows.shape[0], self._classes))
            self._put(rows, made)
            return made
        for k in range(self._classes):
            if rows[0, k] != self._row[k]:
                self._row[k], self._fresh = rows[0, k], False
        if not self._fresh:
            self._put(rows, self._made)
            self._fresh = True
        return self._made

    def _put(self, rows: Floats, out: Floats) -> None:
        logs = self._candidates
        stacked = _SCALED + len(self._of_score)
        composites = stacked + len(self._stacked)
        for m in range(logs):
            if 0 < m < composites:
                continue
            for i in range(out.shape[1]):
                for k in range(out.shape[2]):
                    out[m, i, k] = rows[i, k]
        scale_each(out, 0, logs, _SCALED, self._of_score)
        self._engines.forecast(rows, out[self._shared], out[1])
        normalise(out[1], rows)
        if self._stacked:
            scale_each(out, 1, logs + 1, stacked, self._stacked)
        if self.sourced:
            self._put_shifted(np.asarray(rows), np.asarray(out))

    def _put_shifted(self, rows: Floats, out: Floats) -> None:
        """Put what the composites forecast into ``out``."""
        raise NotImplementedError

    def candidates(self, rows: Floats) -> Floats:
        """Return what each candidate forecasts now, and behind them logarithms of what is scaled."""
        return np.asarray(self._made_of(rows))

    def mixture(self, rows: Floats) -> Floats:
        """Return the mixture of what the candidates forecast now, float64[n, K]."""
        return self.mixed(self._made_of(rows))

    def mixed(self, made: Floats) -> Floats:
        """Return the mixture of forecasts, float64[n, K]; ``made`` is what `candidates` returns."""
        out: Floats = np.empty((made.shape[1], made.shape[2]))
        mix(self._served[0], made, out)
        return out

    # A label

    def _learn_target(
        self,
        rows: Floats,
        codes: Counts,
        times: Floats | None,
        weights: Floats | None,
        index: int | None,
        carried: Floats | None,
    ) -> None:
        """Learn labels of the target that were predicted together."""
        if self._candidates > 1:
            shares = None
            if weights is not None:
                given = np.asarray(weights)
                self._weighed += (given.sum(), np.square(given).sum())
                shares = given * (self._weighed[0] / self._weighed[1])
            self._gather(rows, codes, shares, carried)
        self._fresh = False
        self._engines.learn(rows, codes, "target", times, index, weights)
        count(codes, weights, _RECENT, self._target_counts)
        if self._waiting >= min(_STEP, max(_FIRST_STEP, self.labels // 4)):
            self._step(self.labels)
        self.labels += codes.shape[0]

    def _judge(self, rows: Floats, codes: Counts) -> None:
        """Take a step by labels of the source."""
        self._gather(rows, codes, None, None)
        self._step(None)

    def _gather(self, rows: Floats, codes: Counts, shares: Floats | None, carried: Floats | None) -> None:
        """Keep what the next step needs of labels."""
        end = self._waiting + codes.shape[0]
        if end > self._pending.shape[0]:
            self._make_room(end)
        told = carried if self._carries else None
        gather(
            self._made_of(rows),
            codes,
            self._served[1:],
            told,
            self._engines.observed,
            shares,
            self._pending[self._waiting : end],
        )
        self._pending_codes[self._waiting : end] = codes
        self._waiting = end

    def _make_room(self, rows: int) -> None:
        """Make room for so many labels."""
        waiting, pending, codes = self._waiting, self._pending, self._pending_codes
        self._pending, self._pending_codes = np.zeros((rows, self._width)), np.zeros(rows, np.int64)
        self._pending[:waiting], self._pending_codes[:waiting] = pending[:waiting], codes[:waiting]

    def _step(self, earlier: int | None) -> None:
        """Move weights and scalings by the labels that have been gathered."""
        classes, n = self._classes, self._waiting
        told, codes = self._pending[:n], self._pending_codes[:n]
        late = 0.0
        for i in range(n):
            late += told[i, told.shape[1] - 1]
        numbers = np.asarray(told)
        shares = np.ascontiguousarray(numbers[:, -2])
        self._weights.track(numbers[:, 2 * classes : -2], shares, late / n, earlier=earlier)
        for start in range(0, n, _BLOCK):
            end = min(start + _BLOCK, n)
            x, by_engines = told[start:end, :classes], told[start:end, classes : 2 * classes]
            for scaling in self._of_score:
                scaling.learn(x, codes[start:end], shares[start:end])
            for scaling in self._stacked:
                scaling.learn(by_engines, codes[start:end], shares[start:end])
        self._waiting = 0
        if n > _STEP:
            self._make_room(_STEP)

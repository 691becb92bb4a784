"""ManyRules: how the engine of three classes or more forecasts in mode ``auto``, and learns a label.

Labels wait until a step is due, which moves weights and scalings. One candidate is `OneVsRest`: one binary
engine a class, each of which tells its class from all others. While the first labels of a class are late, by
what these engines know, no step is taken: the others would seem more likely than they are. Later on as many
labels of each class come as there are.

Compiled where there is a C compiler; `many_c.pxd` has the types.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.engine import Engine
from streamcal.engine.multiclass.mixing import ClassWeights
from streamcal.engine.multiclass.softmax_c import OnlineSoftmax, count, gather, mix, normalise, scale_each
from streamcal.events import Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.decoding import Count, require

MOST: Final = 64
"""Number of classes up to which all have an engine."""

_LARGEST: Final = 8  # number of engines where there are more classes: each costs as much as a binary stream

_FEWEST: Final = 4  # labels of its class from which an engine forecasts
_WORTH: Final = 16.0  # recent labels of a class that gets an engine, where not all classes have one
_GROWTH: Final = 2.0  # of labels, from one certificate of a class to the next
_APART: Final = 4  # engines for each label between their turns
_KEPT: Final = 0.9999  # of the recent labels, a label
_PART: Final = 0.5  # of what is expected of a class, below which it is lacking, …
_OVERTAKEN: Final = 0.5  # … if so many predictions, in parts of what is expected, were overtaken, …
_RARE: Final = 0.03  # … and its share is larger


class OneVsRestState(msgspec.Struct):
    """State of the engines."""

    positives: Counts
    recent: Floats
    observed: Count
    engines: dict[Count, tuple[Count, bytes]]
    """By class: number of scores observed when it began, and the state of its engine."""


class OneVsRest:
    """Engines by class.

    The probabilities of the engines are divided by their sum. Of more than `MOST` classes only the few with
    most recent labels have an engine. A class without one, or whose engine has learned few of its labels, has
    the probability of a map that all classes share.

    Parameters
    ----------
    classes
        K.
    config
        options of each engine.
    """

    def __init__(self, classes: int, config: RecalibratorConfig) -> None:
        self._config = config
        self._engines: dict[int, Engine] = {}
        self._begun: dict[int, int] = {}  # number of scores observed before
        # Labels of its class that each engine has learned.
        self._positives: Counts = np.zeros(classes, np.int64)
        self._recent = np.zeros(classes)  # labels of each class, discounted
        self.observed = 0
        """Number of target scores observed."""
        if classes <= MOST:
            for code in range(classes):
                self._begin(code)
        self._arrange()

    def _arrange(self) -> None:
        """List the rules of the engines, places of their classes, and scores observed before, for loops."""
        self._rules: list[Any] = [*self._engines.values()]
        self._codes: Counts = np.array(list(self._engines), np.int64)
        self._starts: Counts = np.array(list(self._begun.values()), np.int64)

    @property
    def engines(self) -> dict[int, Engine]:
        """Engines, by the place of their class."""
        return self._engines

    def forecast(self, rows: Floats, shared: Floats, out: Floats) -> None:
        """Put the probabilities of rows of scores into ``out``, float64[n, K], not divided by their sum.

        ``shared`` is what the classes without an engine have.
        """
        for i in range(rows.shape[0]):
            for k in range(rows.shape[1]):
                out[i, k] = shared[i, k]
        for place in range(len(self._rules)):
            code = self._codes[place]
            if self._positives[code] < _FEWEST:
                continue
            if rows.shape[0] == 1:
                rules = self._rules[place]
                out[0, code] = rules.served.forecast(float(rows[0, code]))
            else:
                np.asarray(out)[:, code] = self._rules[place].served.predict_many(
                    np.ascontiguousarray(np.asarray(rows)[:, code])
                )

    def lack_a_class(self) -> bool:
        """Return whether the labels so far lack many of a class that comes later than others."""
        for rules in self._rules:
            release = rules.release
            if release is None or not release.unsettled:
                continue
            first, expected = release.first, release.sum
            share, overtaken = expected / max(release.asked(), 1), first.newest - first.before
            few = first.positives < _PART * share * first.labels
            if few and overtaken > _OVERTAKEN * expected and share > _RARE:
                return True
        return False

    @property
    def maps(self) -> list[RecalibrationMap | None]:
        """The map of each class by which `forecast` answers; None: ``shared`` is the answer."""
        return [
            self._engines[code].map if positives >= _FEWEST and code in self._engines else None
            for code, positives in enumerate(np.asarray(self._positives).tolist())
        ]

    def observe(self, rows: Floats) -> None:
        """Observe rows of target scores."""
        for place in range(len(self._rules)):
            rules, code = self._rules[place], self._codes[place]
            if rows.shape[0] == 1:
                rules.observe_one(float(rows[0, code]))
            else:
                self._engines[code].observe_many(np.ascontiguousarray(np.asarray(rows)[:, code]))
        self.observed += rows.shape[0]

    def learn(
        self,
        rows: Floats,
        codes: Counts,
        domain: Domain,
        times: Floats | None = None,
        index: int | None = None,
        weights: Floats | None = None,
    ) -> None:
        """Learn checked rows with their labels, predicted when ``index`` scores had been observed."""
        if self._positives.shape[0] > MOST:
            self._admit(np.asarray(codes))
        for i in range(codes.shape[0]):
            self._positives[codes[i]] += 1
        if codes.shape[0] == 1:
            time = None if times is None else float(times[0])
            weight = 1.0 if weights is None else weights[0]
            for place in range(len(self._rules)):
                rules, code = self._rules[place], self._codes[place]
                known = None if index is None else max(0, index - int(self._starts[place]))
                rules.learn_one(float(rows[0, code]), int(code == codes[0]), domain, time, known, weight)
            return
        scores, labels = np.asarray(rows), np.asarray(codes)
        counted, waits = None if weights is None else np.asarray(weights), self._config.mode == "auto"
        for code, engine in self._engines.items():
            before = None if index is None else np.full(len(labels), max(0, index - self._begun[code]))
            its_scores = np.ascontiguousarray(scores[:, code])
            engine.wait_for_turns(waits and len(labels) <= len(self._engines) ** 2 // _APART)  # for one turn
            engine.learn_many(its_scores, (labels == code).astype(np.int8), domain, times, before, counted)
            engine.wait_for_turns(waits)

    def _begin(self, code: int) -> None:
        self._engines[code], self._begun[code] = self._waiting(Engine(self._config)), self.observed
        self._positives[code] = 0

    def _waiting(self, engine: Engine) -> Engine:
        """Return an engine which waits for its turn, and forms few certificates."""
        if engine.config.mode == "auto":
            engine.wait_for_turns(True)
            engine.reform_by(_GROWTH)
        return engine

    def take_turns(self, before: int, after: int) -> None:
        """Let engines do what is due by labels of the target: of several labels, each one at most once.

        ``before`` and ``after`` are the numbers of target labels before and after the latest.
        """
        count = len(self._rules)
        apart = max(1, min(before // (4 * count), count // _APART)) if count else 1
        first = max(before // apart, after // apart - count)
        for turn in range(first, after // apart):
            rules = self._rules[turn % count]
            rules.take_turn()

    def _admit(self, codes: Counts) -> None:
        """Let classes with many recent labels have an engine, in place of those with few."""
        self._recent *= _KEPT ** len(codes)
        np.add.at(self._recent, codes, 1.0)
        for code in sorted({*codes.tolist()}):
            if code in self._engines or self._recent[code] < _WORTH:
                continue
            if len(self._engines) >= _LARGEST:
                least = min(self._engines, key=lambda each: (self._recent[each], each))
                if 2.0 * self._recent[least] > self._recent[code]:
                    continue
                del self._engines[least], self._begun[least]
            self._begin(code)
            self._arrange()

    def to_state(self) -> OneVsRestState:
        """Return the state."""
        return OneVsRestState(
            np.array(self._positives),
            self._recent,
            self.observed,
            {code: (self._begun[code], engine.to_bytes()) for code, engine in self._engines.items()},
        )

    def restore(self, state: OneVsRestState) -> None:
        """Set the state; raise ValueError if it cannot be one."""
        classes, engines = len(self._positives), state.engines
        require(max(engines, default=0) < classes, f"engines of classes {[*engines]}, of {classes}")
        self._positives, self._recent = state.positives.reshape(classes).copy(), state.recent.reshape(classes)
        self.observed = state.observed
        self._engines = {code: self._waiting(Engine.from_bytes(data)) for code, (_, data) in engines.items()}
        self._begun = {code: begun for code, (begun, _) in engines.items()}
        self._arrange()


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
    """The rules for a prediction and a label; `streamcal.engine.multiclass.many.Many` adds modes, and state.

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
        self._weighed = np.zeros((2, 3))  # of source and target: labels with weights, Σw, Σw²
        # One row and its forecasts, until they change: a label that comes at once was predicted just now.
        self._row = np.zeros(classes)
        self._made: Floats = np.empty((candidates + 1 + bool(stacked), 1, classes))
        self._fresh = False
        # Numbers kept of a label that waits: logs of score and engines' row, losses, share, index.
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
                shares = np.asarray(weights) * (self._weighed[1, 1] / self._weighed[1, 2])
            self._gather(rows, codes, shares, carried)
        self._fresh = False
        self._engines.learn(rows, codes, "target", times, index, weights)
        count(codes, weights, _RECENT, self._target_counts)
        if self._waiting >= min(_STEP, max(_FIRST_STEP, self.labels // 4)):
            self._step(self.labels)
        self.labels += codes.shape[0]
        self._engines.take_turns(self.labels - codes.shape[0], self.labels)

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
        """Move weights and scalings by the labels that have been gathered, if these are a fair sample."""
        classes, n = self._classes, self._waiting
        self._waiting = 0
        if self._engines.lack_a_class():
            return
        told, codes = self._pending[:n], self._pending_codes[:n]
        observed, newest, late = self._engines.observed, -1.0, 0.0
        for i in range(n):
            index = told[i, told.shape[1] - 1]
            newest = max(newest, index)
            late += observed - index if index >= 0.0 else 0.0
        numbers = np.asarray(told)
        shares, known = np.ascontiguousarray(numbers[:, -2]), observed if newest >= 0.0 else None
        self._weights.track(numbers[:, 2 * classes : -2], shares, late / n, earlier=earlier, observed=known)
        for start in range(0, n, _BLOCK):
            end = min(start + _BLOCK, n)
            x, by_engines = told[start:end, :classes], told[start:end, classes : 2 * classes]
            for scaling in self._of_score:
                scaling.learn(x, codes[start:end], shares[start:end])
            for scaling in self._stacked:
                scaling.learn(by_engines, codes[start:end], shares[start:end])
        if n > _STEP:
            self._make_room(_STEP)

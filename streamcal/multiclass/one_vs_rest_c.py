"""One binary engine a class, each of which tells its class from all others.

The probabilities of the engines are divided by their sum. Of more than `MOST` classes only the few with most
recent labels have an engine. A class without one, or whose engine has learned few of its labels, has the
probability of a map that all classes share.

Compiled where there is a C compiler; `one_vs_rest_c.pxd` has the types.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import numpy as np

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.engine import Engine
from streamcal.events import Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.decoding import Count, require, within
from streamcal.sketch.weighing import ONE, units_of
from streamcal.values import Counts, Floats

__all__ = ["MOST", "OneVsRest", "OneVsRestState"]

MOST: Final = 64
"""Number of classes up to which all have an engine."""

_LARGEST: Final = 8  # number of engines where there are more classes: each costs as much as a binary stream

_FEWEST: Final = 4  # labels of its class from which an engine forecasts
_WORTH: Final = 16.0  # recent labels of a class that gets an engine, where not all classes have one
_KEPT: Final = 0.9999  # of the recent labels, a label
_ONE: Final = ONE


class OneVsRestState(msgspec.Struct):
    """State of the engines."""

    codes: Counts
    begun: Counts
    positives: Counts
    recent: Floats
    observed: Count
    engines: list[Annotated[bytes, msgspec.Meta(min_length=1)]]


class OneVsRest:
    """Engines by class.

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
            units = _ONE if weights is None else units_of(weights[0])
            for place in range(len(self._rules)):
                rules, code = self._rules[place], self._codes[place]
                known = None if index is None else max(0, index - int(self._starts[place]))
                rules.learn_one(float(rows[0, code]), int(code == codes[0]), domain, time, known, units)
            return
        scores, labels = np.asarray(rows), np.asarray(codes)
        units_of_all = None if weights is None else np.rint(np.asarray(weights) * ONE).astype(np.int64)
        for code, engine in self._engines.items():
            before = None if index is None else np.full(len(labels), max(0, index - self._begun[code]))
            its_scores = np.ascontiguousarray(scores[:, code])
            engine.learn_many(
                its_scores, (labels == code).astype(np.int8), domain, times, before, units_of_all
            )

    def _begin(self, code: int) -> None:
        self._engines[code], self._begun[code] = Engine(self._config), self.observed
        self._positives[code] = 0

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
            np.array(list(self._engines), np.int64),
            np.array(list(self._begun.values()), np.int64),
            np.array(self._positives),
            self._recent,
            self.observed,
            [engine.to_bytes() for engine in self._engines.values()],
        )

    def restore(self, state: OneVsRestState) -> None:
        """Set the state; raise ValueError if it cannot be one."""
        classes, what = len(self._positives), "engines by class"
        codes = within(state.codes, 0, classes - 1, what, len(state.engines)).tolist()
        begun = within(state.begun, 0, state.observed, what, len(codes)).tolist()
        require(len(set(codes)) == len(codes) == min(len(codes), MOST), f"{what}: {len(codes)} of them")
        require(classes > MOST or len(codes) == classes, f"{what}: {len(codes)} of {classes}")
        self._positives = within(state.positives, 0, 1 << 48, what, classes).copy()
        self._recent = within(state.recent, 0.0, 1.0 / (1.0 - _KEPT) * 1e6, what, classes)
        self.observed = state.observed
        self._engines = {
            code: Engine.from_bytes(engine) for code, engine in zip(codes, state.engines, strict=True)
        }
        self._begun = dict(zip(codes, begun, strict=True))
        self._arrange()
        for engine in self._engines.values():
            require(engine.config == self._config, f"{what}: options differ")

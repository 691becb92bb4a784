"""Two classes: one binary engine of the second, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.certificates.record import Certificate
from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.engine import Engine
from streamcal.engine.multiclass.class_map import Candidate
from streamcal.events import Domain


class Two:
    """One binary engine, behind the interface of `streamcal.engine.multiclass.many.Many`."""

    __slots__ = ("engine",)

    carried = 1
    """Width of what `answer` gives for late labels: the number of scores observed before."""

    def __init__(self, config: RecalibratorConfig) -> None:
        self.engine = Engine(config)

    @property
    def labels(self) -> int:
        """Number of target labels learned."""
        return self.engine.target.labels

    @property
    def observed(self) -> int:
        """Number of target scores observed."""
        return self.engine.prediction_count

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the candidates by name."""
        mixing = self.engine.mixing
        return {} if mixing is None else dict(mixing.weights)

    @property
    def certificates(self) -> dict[int, Certificate | None]:
        """Certificate of the engine, by the place of its class."""
        return {1: self.engine.certificate}

    def priors(self) -> tuple[Floats | None, Floats | None]:
        """Return the priors of source and target, float64[2]."""
        return _both(self.engine.source.prior), _both(self.engine.target.prior)

    def parts(self) -> dict[str, Any]:
        """Return what `MulticlassMap` needs."""
        only = Candidate(name=self.engine.config.mode, weight=1.0, kind="maps")
        return {"candidates": (only,), "maps": (None, self.engine.map)}

    def predict(self, rows: Floats) -> Floats:
        """Return the probabilities of rows of scores, float64[n, 2]."""
        ones = self.engine.served.predict_many(np.ascontiguousarray(rows[:, 1]))
        return np.stack((1.0 - ones, ones), axis=1)

    def answer(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return what `predict` returns, and the number of scores observed before each, float64[n, 1]."""
        return self.predict(rows), self.observed + np.arange(len(rows), dtype=np.float64)[:, np.newaxis]

    def observe(self, rows: Floats) -> None:
        """Observe rows of target scores whose labels are not known."""
        self.engine.observe_many(np.ascontiguousarray(rows[:, 1]))

    def learn(
        self,
        rows: Floats,
        codes: Counts,
        domain: Domain,
        times: Floats | None = None,
        weights: Floats | None = None,
        carried: Floats | None = None,
    ) -> None:
        """Learn rows of scores with their labels; ``carried`` is what `answer` gave for them."""
        index = None if carried is None else carried[:, 0].astype(np.int64)
        scores = np.ascontiguousarray(rows[:, 1])
        self.engine.learn_many(scores, codes.astype(np.int8), domain, times, index, weights)

    def to_bytes(self) -> bytes:
        """Return the state."""
        return self.engine.to_bytes()

    def restore(self, data: bytes) -> None:
        """Set the state; raise DamagedStateError if it cannot be one."""
        self.engine = Engine.from_bytes(data)


def _both(one: float | None) -> Floats | None:
    return None if one is None else np.array((1.0 - one, one))

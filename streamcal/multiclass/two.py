"""Two classes: one `Recalibrator` of the second, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcal.certificates.record import Certificate
from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.recalibrator import Recalibrator
from streamcal.events import Domain
from streamcal.multiclass.class_map import Candidate
from streamcal.multiclass.one_vs_rest_c import parts_by_index
from streamcal.values import Counts, Floats

__all__ = ["Two"]


class Two:
    """One binary engine, behind the interface of `streamcal.multiclass.many.Many`."""

    __slots__ = ("engine",)

    def __init__(self, config: RecalibratorConfig) -> None:
        self.engine = Recalibrator(config)

    @property
    def labels(self) -> int:
        """Number of target labels learned."""
        return self.engine.target.labels

    @property
    def observed(self) -> int:
        """Number of target scores observed."""
        return self.engine.prediction_count

    @property
    def carried(self) -> int:
        """Width of what `carry` returns."""
        return 1

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
        source, target = self.engine.source.prior, self.engine.target.prior
        return _both(source), _both(target)

    def parts(self) -> dict[str, Any]:
        """Return what `MulticlassMap` needs."""
        only = Candidate(name=self.engine.config.mode, weight=1.0, kind="maps")
        return {"candidates": (only,), "maps": (None, self.engine.map)}

    def predict(self, rows: Floats) -> Floats:
        """Return the probabilities of rows of scores, float64[n, 2]."""
        ones = self.engine.predict_many(rows[:, 1])
        return np.stack((1.0 - ones, ones), axis=1)

    def answer(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return what `predict` returns, and what `carry` returns."""
        return self.predict(rows), self.carry(rows)

    def carry(self, rows: Floats) -> Floats:
        """Return the number of scores observed, float64[n, 1]."""
        return np.full((len(rows), 1), float(self.observed))

    def observe(self, rows: Floats) -> None:
        """Observe rows of target scores whose labels are not known."""
        self.engine.observe_many(rows[:, 1])

    def learn(
        self,
        rows: Floats,
        codes: Counts,
        domain: Domain,
        times: Any = None,
        weights: Floats | None = None,
        carried: Floats | None = None,
    ) -> None:
        """Learn rows of scores with their labels; see `MulticlassRecalibrator.learn_many`."""
        for part, index in parts_by_index(len(rows), carried):
            self.engine.learn_many(
                rows[part, 1],
                codes[part],
                domain,
                times=None if times is None else times[part],
                weights=None if weights is None else weights[part],
                prediction_index=index,
            )


def _both(one: float | None) -> Floats | None:
    return None if one is None else np.array((1.0 - one, one))

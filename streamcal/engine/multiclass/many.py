"""The engine of three classes or more: candidates, each a row of K probabilities, and their mixture.

Candidates: the score itself; online scalings (`softmax_c`) of the score, with short and long memory; K binary
engines, divided by their sum (`OneVsRest`), and an online scaling of these; and, once there are labels of
the source, the composites of the paper (`simplex`): K maps of the source, divided by their sum, times w_k.
`mixing` weighs them. Other modes than ``auto`` serve one row.

Labels that come one by one are gathered until a step is due. The state is a function of the calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.certificates.record import Certificate
from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.multiclass.class_map import KINDS, Candidate
from streamcal.engine.multiclass.many_c import STEP, ManyRules, OneVsRest, OneVsRestState
from streamcal.engine.multiclass.mixing import ClassWeights
from streamcal.engine.multiclass.simplex import class_priors, likeliest_priors, shift_weights, shifted
from streamcal.engine.multiclass.softmax_c import DENSE, OnlineSoftmax, normalise
from streamcal.engine.schedule import parts_of_call
from streamcal.engine.state import compressed, expanded
from streamcal.events import Domain
from streamcal.sketch.decoding import Count, decoded, encoded, require, restoring, within

_FIRST_PART: Final = 64  # labels of one call that are judged together, at least
_SCALINGS: Final = {
    "bias/0.998": 0.998,
    "bias/0.9998": 0.9998,
    "vector/0.9998": 0.9998,
    "matrix/0.9998": 0.9998,
}
"""Scalings of the score, and their discounts of earlier labels."""

_SHARED: Final = "bias/0.9998"
"""Scaling that gives classes without an engine their probability."""

_STACKED: Final = {"one-vs-rest/vector/0.9999": 0.9999}
"""Scalings of the K engines' row."""

_RIDGE: Final = (5.0, 1.0, 20.0)
_MATRIX: Final = 30  # classes up to which there is one
_IDENTITY: Final = 0.2  # the score's first weight, in parts of another's: all scalings begin with it
_SMOOTHING: Final = 0.5  # labels of each class that a prior has more: Krichevsky–Trofimov
_SCORES: Final = 1000  # latest scores that tell of the prior
_SCORE_STEP: Final = 32
_EM_STEPS: Final = 5


class ManyState(msgspec.Struct):
    """State of the engine of three classes or more."""

    engines: OneVsRestState
    source_engines: OneVsRestState | None
    scalings: list[list[Floats]]
    weights: ClassWeights
    counts: Floats
    """Labels of the source, of the target, and of the target discounted, one after the other."""
    labels: Count
    weighed: Floats
    """Number, Σw and Σw² of the labels with weights: of the source, then of the target."""
    pending: Floats
    pending_codes: Counts
    scores: Floats
    scores_since: Count
    by_scores: Floats


class Many(ManyRules):
    """Candidates and their mixture, for K ≥ 3 classes."""

    __slots__ = (
        "_by_scores",
        "_config",
        "_kinds",
        "_places",
        "_scalings",
        "_scores",
        "_scores_since",
        "_source_engines",
        "carried",
        "names",
    )

    def __init__(self, classes: int, config: RecalibratorConfig) -> None:
        self._config = config
        each = config.model_copy(update={"delta": config.delta / classes, "prior": "labels"})
        self._source_engines: OneVsRest | None = None
        auto = config.mode == "auto"
        kinds = {**_SCALINGS, **_STACKED} if auto else {}
        made = {name: _scaling(classes, name, discount) for name, discount in kinds.items()}
        self._scalings = {name: scaling for name, scaling in made.items() if scaling is not None}
        shifts = ["composite/scores"] if config.prior == "scores" else []
        shifts = ["composite/all", "composite/300", *shifts]
        self.names = ("identity", "one-vs-rest", *self._scalings, *shifts) if auto else (config.mode,)
        """Names of the candidates."""
        scalings = ["scaling of maps" if name in _STACKED else "scaling" for name in self._scalings]
        alone = "maps" if config.mode == "target" else "shift"
        self._kinds = ["score", "maps", *scalings, *["shift"] * len(shifts)] if auto else [alone]
        self._places: dict[str, list[tuple[int, str]]] = {kind: [] for kind in KINDS}
        for place, (name, kind) in enumerate(zip(self.names, self._kinds, strict=True)):
            self._places[kind].append((place, name))
        shift = np.array([auto and kind == "shift" for kind in self._kinds])
        first = np.where(shift, 0.0, 1.0)
        if auto:
            first[0] = _IDENTITY
        first /= max(first.sum(), 1.0)
        super().__init__(
            classes,
            len(self.names),
            OneVsRest(classes, each),
            ClassWeights.begun(first, shift),
            [self._scalings[name] for _, name in self._places["scaling"]],
            [self._scalings[name] for _, name in self._places["scaling of maps"]],
            self.names.index(_SHARED) if auto else 0,
            carries=auto and classes <= DENSE,
        )
        self.carried = 1 + (2 * len(self.names) + (len(self.names) - 1) * classes if self._carries else 0)
        """C, the width of what `answer` gives for late labels."""
        self._scores, self._scores_since = np.empty((0, classes)), 0
        self._by_scores: Floats | None = None

    @property
    def observed(self) -> int:
        """Number of target scores observed."""
        return self._engines.observed

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the candidates by name; empty in other modes than ``auto``."""
        served = self._weights.served[0].tolist()
        return dict(zip(self.names, served, strict=True)) if len(self.names) > 1 else {}

    @property
    def certificates(self) -> dict[int, Certificate | None]:
        """Certificates of the binary engines, by the place of their class."""
        return {code: engine.certificate for code, engine in sorted(self._engines.engines.items())}

    def priors(self, name: str | None = None) -> tuple[Floats | None, Floats | None]:
        """Return the priors of source and target of the composite of this name; None: the one to show."""
        if name is None:
            name = "scores" if self._config.prior == "scores" else "all"
        source, target, recent = self._counts
        p = class_priors(source, _SMOOTHING * self._mean_weight(0)) if source.any() else None
        if name == "scores" and self._by_scores is not None:
            return p, self._by_scores
        counts, mean = (recent, 1.0) if name == "300" else (target, self._mean_weight(1))
        if not counts.any():
            return p, None
        return p, class_priors(counts, mean * (_SMOOTHING if p is None or self._config.mode != "auto" else p))

    def _mean_weight(self, row: int) -> float:
        """Return the mean weight of the source's weighted labels, 0, or the target's, 1; 1.0 without any."""
        n, total, _ = self._weighed[row].tolist()
        return total / n if n else 1.0

    # Forecasts

    def forecasts(self, rows: Floats) -> Floats:
        """Return what each candidate forecasts now, float64[M, n, K].

        In mode ``auto``, logarithms of the score are behind them, and of the engines' row if it is scaled.
        """
        mode = self._config.mode
        if mode == "target":
            return self._by_engines(rows, self._engines)[np.newaxis]
        by_source = self._by_engines(rows, self._source_engines)
        if mode == "source":
            return by_source[np.newaxis]
        if mode in ("label_shift", "composite"):
            return shifted(rows if mode == "label_shift" else by_source, *self.priors())[np.newaxis]
        return self.candidates(rows)

    def _by_engines(self, rows: Floats, engines: OneVsRest | None) -> Floats:
        """Return the probabilities of K engines, divided by their sum; None: there are none yet."""
        if engines is None:
            return rows
        made: Floats = np.empty(rows.shape)
        engines.forecast(rows, rows, made)
        normalise(made, rows)
        return made

    def _put_shifted(self, rows: Floats, out: Floats) -> None:
        """Put what the composites forecast into ``out``, float64[M + 1 or M + 2, n, K]."""
        by_source = self._by_engines(rows, self._source_engines)
        for place, name in self._places["shift"]:
            out[place] = shifted(by_source, *self.priors(_prior_of(name)))

    def parts(self) -> dict[str, Any]:
        """Return what `MulticlassMap` needs."""
        candidates, engines = [], self._source_engines if self._config.mode != "label_shift" else None
        for name, kind, weight in zip(self.names, self._kinds, self._weights.served[0].tolist(), strict=True):
            parameters = self._scalings[name].parameters if name in self._scalings else None
            if kind == "shift" and name != "source":
                parameters = shift_weights(*self.priors(_prior_of(name)))
            if weight:
                known = () if parameters is None else parameters.tolist()
                given = {"name": name, "weight": weight, "kind": kind, "parameters": known}
                candidates.append(Candidate.model_validate(given))
        return {
            "candidates": candidates,
            "maps": self._engines.maps if "maps" in self._kinds else (),
            "shared": _SHARED if _SHARED in self.names else None,
            "source_maps": () if engines is None or "shift" not in self._kinds else engines.maps,
        }

    def predict(self, rows: Floats) -> Floats:
        """Return the probabilities of rows of scores, float64[n, K]."""
        alone = len(self.names) == 1
        made: Floats = self.forecasts(rows)[0] if alone else self.mixture(rows)
        return made

    def answer(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return what `predict` returns, and what `learn` needs of these predictions later, float64[n, C].

        The number of scores observed; then, up to `DENSE` classes, the weights by each tracker, and the
        forecasts of all candidates but the first, the score itself. These are 0 while no label is known:
        then all candidates forecast the same, and are judged by what they forecast on arrival.
        """
        made, candidates = self.forecasts(rows), len(self.names)
        out: Floats = np.zeros((len(rows), self.carried))
        out[:, 0] = self.observed
        if self._carries and (self.labels > 0 or self.sourced):
            out[:, 1 : 1 + 2 * candidates] = self._weights.served[1:].ravel()
            out[:, 1 + 2 * candidates :] = made[1:candidates].transpose(1, 0, 2).reshape(len(rows), -1)
        return made[0] if candidates == 1 else self.mixed(made), out

    # Learning

    def observe(self, rows: Floats) -> None:
        """Observe rows of target scores whose labels are not known."""
        self._engines.observe(rows)
        self._fresh = False
        if self._config.prior != "scores" or not len(rows):
            return
        self._scores = np.concatenate((self._scores, rows))[-_SCORES:]
        self._scores_since += len(rows)
        if self._scores_since >= _SCORE_STEP and self.sourced:
            self._scores_since = 0
            source = self._counts[0] + 0.5 * self._mean_weight(0)
            source /= source.sum()
            made, labels = self._by_engines(self._scores, self._source_engines), self._counts[2] + source
            self._by_scores = likeliest_priors(made, source, labels, self._by_scores, _EM_STEPS)

    def learn(
        self,
        rows: Floats,
        codes: Counts,
        domain: Domain,
        times: Any = None,
        weights: Floats | None = None,
        carried: Floats | None = None,
    ) -> None:
        """Learn rows of scores with their labels; ``carried`` is what `answer` gave for them."""
        carried, learn = (None, self._learn_source) if domain == "source" else (carried, self._learn_target)
        if weights is not None:
            self._weighed[int(domain == "target")] += (len(weights), weights.sum(), (weights**2).sum())
        if len(rows) == 1:
            learn(rows, codes, times, weights, None if carried is None else int(carried[0, 0]), carried)
            return
        if domain == "source" and self._config.window is None and _by_label(codes):
            order = np.random.default_rng(0).permutation(len(rows))
            rows, codes = rows[order], codes[order]
            times, weights = (None if each is None else each[order] for each in (times, weights))
        known = self.labels if domain == "target" else int(self._counts[0].sum() / self._mean_weight(0))
        for whole, index in _parts_by_index(len(rows), carried):
            # What was predicted together could rest on no more labels than there were before.
            starts = parts_of_call(whole.stop - whole.start, max(known + whole.start, _FIRST_PART))
            for start, end in pairwise([*starts, whole.stop - whole.start]):
                part = slice(whole.start + start, whole.start + end)
                given = times, weights, carried
                moments, shares, then = (None if each is None else each[part] for each in given)
                learn(rows[part], codes[part], moments, shares, index, then)

    def _learn_source(
        self, rows: Floats, codes: Counts, times: Any, weights: Floats | None, *_not_told: object
    ) -> None:
        if len(self.names) > 1 and not self.labels:
            self._judge(rows, codes)
        self._fresh = False
        engines = self._source_engines or self._begin_source()
        engines.learn(rows, codes, "source", times, None, weights)
        self._engines.learn(rows, codes, "source", times, None, weights)
        self._counts[0] += np.bincount(codes, weights, self._classes)

    def _begin_source(self) -> OneVsRest:
        """Return the engines of h_P, one a class; the composites take part from now on."""
        each = RecalibratorConfig(**{**self._config.model_dump(), "mode": "source", "prior": "labels"})
        self._source_engines = OneVsRest(self._classes, each)
        if len(self.names) > 1:
            self._weights.admit_shift()
            self._use(self._counts)
        self.sourced = True
        return self._source_engines

    # State

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        source = self._source_engines
        state = ManyState(
            self._engines.to_state(),
            None if source is None else source.to_state(),
            [scaling.to_state() for scaling in self._scalings.values()],
            self._weights,
            self._counts.ravel(),
            self.labels,
            self._weighed.ravel(),
            *self._awaited(),
            self._scores.ravel(),
            self._scores_since,
            np.empty(0) if self._by_scores is None else self._by_scores,
        )
        return compressed(encoded(state))

    def restore(self, data: bytes) -> None:
        """Set the state; raise DamagedStateError if it cannot be one."""
        state = decoded(expanded(data), ManyState, "many classes")
        with restoring("not the state of many classes"):
            self._restore(state, self._classes)

    def _restore(self, state: ManyState, classes: int) -> None:
        self._engines.restore(state.engines)
        if state.source_engines is not None:
            self._begin_source().restore(state.source_engines)
        for scaling, its in zip(self._scalings.values(), state.scalings, strict=True):
            scaling.restore(its)
        self._weights = state.weights.of(self._weights._first, self._weights._shift)
        self.labels, self._weighed = state.labels, state.weighed.reshape(2, 3).copy()
        self._use(state.counts.reshape(3, classes))
        codes = within(state.pending_codes, 0, classes - 1, "classes of labels that wait")
        require(len(codes) <= STEP, f"{len(codes)} labels wait")
        self._await(state.pending, codes)
        self._scores, self._scores_since = state.scores.reshape(-1, classes), state.scores_since
        self._by_scores = state.by_scores.reshape(classes) if state.by_scores.size else None


def _parts_by_index(n: int, carried: Floats | None) -> Iterator[tuple[slice, int | None]]:
    """Yield the parts of n labels that were predicted together, with the number of scores observed before.

    ``carried``, float64[n, C], begins with that number; None: all were predicted just before this call.
    """
    if carried is None:
        yield slice(0, n), None
        return
    if n == 1:
        yield slice(0, 1), int(carried[0, 0])
        return
    starts = np.flatnonzero(np.diff(carried[:, 0], prepend=-1.0)).tolist()
    for start, end in pairwise([*starts, n]):
        yield slice(start, end), int(carried[start, 0])


def _scaling(classes: int, name: str, discount: float) -> OnlineSoftmax | None:
    """Return the scaling of this name; None: there are too many classes for it."""
    kind = name.split("/")[-2]
    slopes, most = {"bias": (1, classes), "vector": (classes, DENSE), "matrix": (classes**2, _MATRIX)}[kind]
    if classes > most:
        return None
    return OnlineSoftmax(classes, slopes=slopes, discount=discount, ridge=_RIDGE)


def _by_label(codes: Counts) -> bool:
    """Whether labels stand in an order of their own, as in a table sorted by them: scalings would follow it.

    Then they change from one to the next less than half as often as in a random order.
    """
    shares = np.bincount(codes) / len(codes)
    return bool(2.0 * np.mean(codes[1:] != codes[:-1]) < 1.0 - np.square(shares).sum())


def _prior_of(name: str) -> str | None:
    """Return the name of the priors of a composite; None: those to show."""
    return name.partition("/")[2] or None

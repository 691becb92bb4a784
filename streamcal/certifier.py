"""The certificates of one engine over its life: what each version may claim, and what was refuted.

A certificate is worked out when it is asked for, from the cells as they were when the version was formed, and
kept. Memory: those cells in compact form, and at most `MOST_CERTIFICATES` certificates.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal import grid
from streamcal.bin_limits import BinIntervals, bin_intervals
from streamcal.certificate import LABEL_SHIFT_REFUTED, MONOTONE_REFUTED, Certificate, make_certificate
from streamcal.certify import (
    RiskBound,
    certify_best,
    certify_map,
    certify_served,
    default_candidates,
    version_delta,
)
from streamcal.certify_target import certify_target, shift_odds
from streamcal.config import Domain
from streamcal.drift import LabelShiftWatch
from streamcal.errors import DamagedStateError
from streamcal.sketch import ScoreSketch
from streamcal.types import DriftAlarm

__all__ = ["MOST_CERTIFICATES", "Certifier", "Formed", "Target"]

MOST_CERTIFICATES: Final = 64
"""How many certificates the history keeps: when there are more, every second one goes."""

# Shares of δ where label shift carries a claim from the source to a target: for versions formed from the
# source, for priors and masses of the target, and for versions formed from the target (mode auto has both).
_SOURCE, _TARGET, _TARGET_VERSIONS = 0.6, 0.2, 0.2
_ALPHA: Final = 0.1  # α of the label-shift test in units of δ, beyond it

Counts = npt.NDArray[np.int64]


class Formed(NamedTuple):
    """A map version as it was formed."""

    cells: bytes
    """The labelled sketch it was formed from, as bytes: a quarter of its size."""
    splits: Counts
    """int64[B+1], its bins."""
    choices: int
    """From how many binnings it was chosen with the labels in view."""
    place: int
    """j: how many versions its domain had formed before it."""
    domain: Domain
    """Where the labels are from."""

    def sketch(self) -> ScoreSketch:
        """Return the labelled sketch it was formed from."""
        return ScoreSketch.from_bytes(self.cells)


class Target(NamedTuple):
    """What is known of the target when a certificate is asked for."""

    scores: ScoreSketch
    """Its scores, labelled or not."""
    labels: tuple[int, int]
    """(positives, labels)."""
    weights: tuple[float, float]
    """(w₀, w₁) of the served map."""


class _FormedState(msgspec.Struct):
    cells: bytes
    splits: list[int]
    choices: int
    place: int
    domain: Domain


class _State(msgspec.Struct):
    formed: _FormedState | None
    version: int
    on_schedule: bool
    alarms: list[DriftAlarm]
    watch: bytes | None


class Certifier:
    """Works out and remembers the certificates of an engine, and tests their assumptions.

    Parameters
    ----------
    delta
        δ in (0, 1), for the whole life of the stream.
    max_cells
        that of the engine's sketches.
    shifts
        whether the served map claims something of a target by label shift: δ then pays for both sides,
        and the target's labels are watched.
    identity
        whether it is g alone: h is the identity, and the bins only serve to certify it.
    """

    __slots__ = (
        "_alarms",
        "_claim",
        "_delta",
        "_formed",
        "_history",
        "_identity",
        "_on_schedule",
        "_shifts",
        "_version",
        "watch",
    )

    def __init__(self, delta: float, max_cells: int, *, shifts: bool, identity: bool) -> None:
        self._delta = delta
        self._shifts = shifts
        self._identity = identity
        self._formed: Formed | None = None
        self._version = 0
        self._on_schedule = True
        self._claim: tuple[RiskBound, BinIntervals] | None = None
        self._history: list[Certificate] = []
        self._alarms: list[DriftAlarm] = []
        self.watch = LabelShiftWatch(_ALPHA * delta, max_cells) if shifts else None
        """Where target labels go; None if nothing is claimed by label shift."""

    @property
    def alarms(self) -> tuple[DriftAlarm, ...]:
        """The assumptions refuted so far, each once."""
        return tuple(self._alarms)

    @property
    def history(self) -> tuple[Certificate, ...]:
        """The certificates so far, thinned, oldest first."""
        return tuple(self._history)

    def form(self, formed: Formed) -> None:
        """Take note of a map that was formed on schedule."""
        self._formed, self._claim = formed, None
        self._on_schedule = True

    def form_off_schedule(self) -> None:
        """Take note of a map that was formed off schedule: what is certified is still the one before."""
        self._on_schedule = False

    def serve(self, version: int) -> None:
        """Take note of a version that begins on schedule."""
        if self._on_schedule:
            self._version = version

    def look(self, source: ScoreSketch, target: ScoreSketch) -> None:
        """Look whether the target's labels refute label shift; see `LabelShiftWatch.look`."""
        if self.watch is not None and self.watch.look(source, target):
            reason = f"log e-value {self.watch.log_e:.1f} of the label-shift test"
            self._alarm(LABEL_SHIFT_REFUTED, reason, target.n)

    def certificate(self, target: Target, time: float | None) -> Certificate | None:
        """Return the certificate of the served map; None before the first version.

        Of a map formed off schedule nothing is claimed: it is then that of the version before, and says so.

        Parameters
        ----------
        target
            what is known of the target now.
        time
            event time now, seconds.
        """
        formed = self._formed
        if formed is None:
            return None
        bound, intervals = self._claims(formed)
        sketch = formed.sketch()
        labels = (sketch.n_positives, sketch.n)
        target_risk = None
        if formed.domain == "target":
            target_risk = bound.risk
        elif self._shifts and target.labels[1]:
            target_risk = self._target_risk(formed, intervals, labels, target)
        certificate = make_certificate(
            version=self._version,
            time=time,
            bound=bound,
            domain=formed.domain,
            labels=labels,
            delta=self._delta,
            target_labels=target.labels,
            target_risk=target_risk,
            label_shift_refuted=self.watch is not None and self.watch.refuted,
            on_schedule=self._on_schedule,
        )
        if not bound.monotone:
            self._alarm(MONOTONE_REFUTED, "two bins have certain rates in the wrong order", target.labels[1])
        self._remember(certificate)
        return certificate

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes.

        The history is not part of it: it tells when certificates were asked for, not what was learned.
        """
        formed = None
        if self._formed is not None:
            cells, splits, choices, place, domain = self._formed
            formed = _FormedState(cells, splits.tolist(), choices, place, domain)
        watch = None if self.watch is None else self.watch.to_bytes()
        return msgspec.msgpack.encode(_State(formed, self._version, self._on_schedule, self._alarms, watch))

    def restore(self, data: bytes) -> Self:
        """Take on the state that `to_bytes` gave.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        try:
            state = msgspec.msgpack.decode(data, type=_State)
        except msgspec.DecodeError as error:
            raise DamagedStateError(f"not the state of a certifier: {error}") from None
        if state.formed is not None:
            known = state.formed
            sketch = ScoreSketch.from_bytes(known.cells)
            splits = np.array(known.splits, np.int64)
            if len(splits) < 2 or splits[0] or splits[-1] != len(sketch.cells) or (np.diff(splits) < 1).any():
                raise DamagedStateError("not the state of a certifier: its bins are not those of its cells")
            self.form(Formed(known.cells, splits, known.choices, known.place, known.domain))
        self._version, self._on_schedule, self._alarms = state.version, state.on_schedule, state.alarms
        if self.watch is not None and state.watch is not None:
            self.watch.restore(state.watch)
        return self

    def _alarm(self, assumption: str, reason: str, target_labels: int) -> None:
        if all(alarm.assumption != assumption for alarm in self._alarms):
            self._alarms.append(DriftAlarm(assumption, reason, target_labels))

    def _claims(self, formed: Formed) -> tuple[RiskBound, BinIntervals]:
        """Return the bound on the served map, and limits on its bins, on one event of probability 1 − δ_j."""
        if self._claim is None:
            share = 1.0
            if self._shifts:
                share = _SOURCE if formed.domain == "source" else _TARGET_VERSIONS
            delta = version_delta(share * self._delta, formed.place)
            negatives, positives = formed.sketch().counts
            if self._identity:
                bound = _identity_bound(formed, delta / 2)
            else:
                bound = certify_served(
                    negatives, positives, formed.splits, delta=delta, choices=formed.choices
                )
            limits = bin_intervals(
                negatives, positives, formed.splits, delta=delta / 2, choices=formed.choices
            )
            self._claim = bound, limits
        return self._claim

    def _target_risk(
        self, formed: Formed, intervals: BinIntervals, labels: tuple[int, int], target: Target
    ) -> float:
        odds = target.weights[1] / target.weights[0] if target.weights[0] else np.inf
        if self._identity:
            lowest, highest = (shift_odds(edge, odds) for edge in _edges(formed, formed.splits))
        else:
            negatives, positives = formed.sketch().counts
            hits = np.add.reduceat(positives, formed.splits[:-1])
            lowest = highest = shift_odds(
                hits / np.add.reduceat(negatives + positives, formed.splits[:-1]), odds
            )
        return certify_target(
            intervals,
            lowest,
            highest,
            _bin_counts(formed, target.scores),
            scores=target.scores.n,
            source_labels=labels,
            target_labels=target.labels,
            delta=_TARGET * self._delta,
        )

    def _remember(self, certificate: Certificate) -> None:
        if self._history and self._history[-1].version == certificate.version:
            self._history.pop()
        self._history.append(certificate)
        if len(self._history) > MOST_CERTIFICATES:
            self._history = self._history[-1::-2][::-1]


def _edges(formed: Formed, splits: Counts) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the left and the right edge of every bin, float64[B] each."""
    sketch = formed.sketch()
    inner = grid.left_edges(sketch.cells[splits[1:-1] - 1] + np.int32(1), sketch.level)
    return np.concatenate(([0.0], inner)), np.concatenate((inner, [1.0]))


def _identity_bound(formed: Formed, delta: float) -> RiskBound:
    """Bound the risk of h(z) = z, by the triangle inequality from the best certified map."""
    sketch = formed.sketch()
    negatives, positives = sketch.counts
    best, splits = certify_best(
        negatives, positives, default_candidates(sketch.n, len(negatives)), delta=delta
    )
    every = np.arange(len(negatives) + 1)
    left, right = _edges(formed, every)
    risk = certify_map(left, right, negatives, positives, splits, best, delta=delta)
    return best._replace(calibration=risk, sharpness=0.0, risk=risk, bins=0)


def _bin_counts(formed: Formed, scores: ScoreSketch) -> Counts:
    """Count the scores of every bin, int64[B]; a cell that an edge splits counts in each bin it touches."""
    sketch = formed.sketch()
    inner = (sketch.cells[formed.splits[1:-1] - 1].astype(np.int64) + 1) << sketch.level
    starts = scores.cells.astype(np.int64) << scores.level
    ends = starts + (1 << scores.level)
    below = np.concatenate(([0], np.cumsum(scores.totals)))
    first = below[np.searchsorted(ends, inner, side="right")]
    last = below[np.searchsorted(starts, inner, side="left")]
    return np.concatenate((last, below[-1:])) - np.concatenate(([0], first))

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
from streamcal.binning import bin_sums
from streamcal.certificate import LABEL_SHIFT_REFUTED, MONOTONE_REFUTED, Certificate, make_certificate
from streamcal.certify import Both, RiskBound, certify_both, certify_map, version_delta
from streamcal.certify_target import certify_target, shift_odds
from streamcal.config import Domain, Mode
from streamcal.drift import LabelShiftWatch
from streamcal.errors import DamagedStateError
from streamcal.maps import RecalibrationMap
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
    served: RecalibrationMap
    """The map that is served, with its weights."""


class _Claims(NamedTuple):
    """What is certain of a version, on one event of probability 1 − δ_j."""

    both: Both
    """Bounds on the map that it formed and on the best certified one; half of δ_j went to that."""
    limits: BinIntervals
    """On its own bins."""


class _FormedState(msgspec.Struct):
    cells: bytes
    splits: list[int]
    choices: int
    place: int
    domain: Domain


class _State(msgspec.Struct):
    formed: list[_FormedState]
    version: int
    on_schedule: bool
    alarms: list[DriftAlarm]
    generation: int
    watch: bytes | None


class Certifier:
    """Works out and remembers the certificates of an engine, and tests their assumptions.

    Parameters
    ----------
    delta
        δ in (0, 1), for the whole life of the stream.
    max_cells
        that of the engine's sketches.
    mode
        of the engine. Unless it is ``source`` or ``target``, the served map claims something of a target by
        label shift: δ then pays for both sides, and the target's labels are watched. In ``label_shift`` h is
        the identity, and the bins only serve to certify it; in ``auto`` they certify the mixture.
    windowed
        whether versions are formed from a window of the labels.
    """

    __slots__ = (
        "_alarms",
        "_claims",
        "_delta",
        "_formed",
        "_history",
        "_max_cells",
        "_mode",
        "_on_schedule",
        "_shifts",
        "_version",
        "_windowed",
        "generation",
        "watch",
    )

    def __init__(self, delta: float, max_cells: int, mode: Mode, *, windowed: bool = False) -> None:
        self._delta = delta
        self._max_cells = max_cells
        self._mode = mode
        self._windowed = windowed
        self._shifts = mode not in ("source", "target")
        self._formed: dict[Domain, Formed] = {}
        self._version = 0
        self._on_schedule = True
        self._claims: dict[Domain, _Claims] = {}
        self._history: list[Certificate] = []
        self._alarms: list[DriftAlarm] = []
        self.generation = 0
        """How many times the source was replaced after label shift had been refuted."""
        self.watch = self._new_watch()
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
        self._formed[formed.domain] = formed
        self._claims.pop(formed.domain, None)
        self._on_schedule = True

    def form_off_schedule(self) -> None:
        """Take note of a map that was formed off schedule: what is certified is still the one before."""
        self._on_schedule = False

    def serve(self, version: int) -> None:
        """Take note of a version that begins on schedule."""
        if self._on_schedule:
            self._version = version

    def look(self, source: ScoreSketch, target: ScoreSketch, target_labels: int) -> bool:
        """Look whether the target's labels refute label shift now; see `LabelShiftWatch.look`."""
        if self.watch is None or not self.watch.look(source, target):
            return False
        reason = f"log e-value {self.watch.log_e:.1f} of the label-shift test"
        if self.generation:
            reason += f", source generation {self.generation}"
        self._alarms.append(DriftAlarm(LABEL_SHIFT_REFUTED, reason, target_labels))
        return True

    def replace_source(self) -> None:
        """Take note that the source is another from now on, and test label shift anew."""
        self.generation += 1
        self.watch = self._new_watch()

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
        formed = self._formed.get("target") or self._formed.get("source")
        if formed is None:
            return None
        claims = self._claims_of(formed)
        bound = claims.both.served
        if self._mode == "label_shift":
            bound = _bound_of(RecalibrationMap(version=0), formed, claims)
        elif self._mode == "auto" and not _is_formed(target.served, formed):
            bound = _bound_of(target.served, formed, claims)
        refuted = self.watch is not None and self.watch.refuted
        source = self._formed.get("source")
        shifted = None
        if source is not None and self._shifts and target.labels[1] and not self.generation:
            shifted = 1.0 if refuted else self._target_risk(source, self._claims_of(source), target)
        by_shift = shifted is not None and (formed.domain == "source" or shifted < bound.risk)
        sketch = formed.sketch()
        certificate = make_certificate(
            version=self._version,
            time=time,
            bound=bound,
            domain=formed.domain,
            labels=(sketch.n_positives, sketch.n),
            delta=self._delta,
            target_labels=target.labels,
            target_risk=shifted if by_shift else bound.risk if formed.domain == "target" else None,
            by_label_shift=by_shift,
            label_shift_refuted=refuted,
            windowed=self._windowed,
            served_bins=target.served.bins if self._mode in ("auto", "label_shift") else None,
            on_schedule=self._on_schedule,
        )
        if not bound.monotone and all(alarm.assumption != MONOTONE_REFUTED for alarm in self._alarms):
            reason = "two bins have certain rates in the wrong order"
            self._alarms.append(DriftAlarm(MONOTONE_REFUTED, reason, target.labels[1]))
        self._remember(certificate)
        return certificate

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes.

        The history is not part of it: it tells when certificates were asked for, not what was learned.
        """
        formed = [
            _FormedState(each.cells, each.splits.tolist(), each.choices, each.place, domain)
            for domain, each in sorted(self._formed.items())
        ]
        watch = None if self.watch is None else self.watch.to_bytes()
        return msgspec.msgpack.encode(
            _State(formed, self._version, self._on_schedule, self._alarms, self.generation, watch)
        )

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
        for known in state.formed:
            sketch = ScoreSketch.from_bytes(known.cells)
            splits = np.array(known.splits, np.int64)
            if len(splits) < 2 or splits[0] or splits[-1] != len(sketch.cells) or (np.diff(splits) < 1).any():
                raise DamagedStateError("not the state of a certifier: its bins are not those of its cells")
            self.form(Formed(known.cells, splits, known.choices, known.place, known.domain))
        self._version, self._on_schedule, self._alarms = state.version, state.on_schedule, state.alarms
        self.generation = state.generation
        self.watch = self._new_watch()
        if self.watch is not None and state.watch is not None:
            self.watch.restore(state.watch)
        return self

    def _new_watch(self) -> LabelShiftWatch | None:
        if not self._shifts:
            return None
        # Only mode auto replaces its source: the shares of all its generations sum to α.
        share = 1.0 / ((self.generation + 1) * (self.generation + 2)) if self._mode == "auto" else 1.0
        return LabelShiftWatch(share * _ALPHA * self._delta, self._max_cells)

    def _claims_of(self, formed: Formed) -> _Claims:
        claims = self._claims.get(formed.domain)
        if claims is None:
            claims = self._claims[formed.domain] = self._work_out(formed)
        return claims

    def _work_out(self, formed: Formed) -> _Claims:
        share = 1.0
        if self._shifts:
            share = _SOURCE if formed.domain == "source" else _TARGET_VERSIONS
        delta = version_delta(share * self._delta, formed.place)
        negatives, positives = formed.sketch().counts
        return _Claims(
            certify_both(negatives, positives, formed.splits, delta=delta, choices=formed.choices),
            bin_intervals(negatives, positives, formed.splits, delta=delta / 2, choices=formed.choices),
        )

    def _target_risk(self, formed: Formed, claims: _Claims, target: Target) -> float:
        sketch = formed.sketch()
        if self._mode == "composite":
            weights = target.served.weights
            odds = weights[1] / weights[0] if weights[0] else np.inf
            negatives, positives = sketch.counts
            hits = np.add.reduceat(positives, formed.splits[:-1])
            lowest = highest = shift_odds(
                hits / np.add.reduceat(negatives + positives, formed.splits[:-1]), odds
            )
        else:
            lowest, highest = _range(target.served, *_edges(formed, formed.splits))
        return certify_target(
            claims.limits,
            lowest,
            highest,
            _bin_counts(formed, target.scores),
            scores=target.scores.n,
            source_labels=(sketch.n_positives, sketch.n),
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


def _is_formed(served: RecalibrationMap, formed: Formed) -> bool:
    """Return whether the served map is the one that was formed, not a mixture nor one formed off schedule."""
    negatives, positives = formed.sketch().counts
    rates = bin_sums(positives, formed.splits) / bin_sums(negatives + positives, formed.splits)
    left, _ = _edges(formed, formed.splits)
    return served.values == tuple(rates.tolist()) and served.edges[:-1] == tuple(left.tolist())


def _bound_of(served: RecalibrationMap, formed: Formed, claims: _Claims) -> RiskBound:
    """Bound R of any map, by the triangle inequality from the best certified one (lemma 9)."""
    negatives, positives = formed.sketch().counts
    lowest, highest = _range(served, *_edges(formed, np.arange(len(negatives) + 1)))
    best = claims.both.best
    risk = certify_map(lowest, highest, negatives, positives, claims.both.splits, best, delta=best.delta)
    # Of the identity, two scores never share a value: it loses no sharpness. Of a step map nothing finer is
    # known here than that neither part exceeds the whole.
    sharpness = min(risk, 0.25) if served.values else 0.0
    return claims.both.served._replace(calibration=risk, sharpness=sharpness, risk=risk)


def _range(
    served: RecalibrationMap, left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the least and the greatest value of a map on every [left, right): float64[m] each."""
    weights = served.weights
    odds = weights[1] / weights[0] if weights[0] else np.inf
    if not served.values:
        return shift_odds(left, odds), shift_odds(right, odds)
    inner = np.array(served.edges[1:-1])
    first, last = np.searchsorted(inner, left, "right"), np.searchsorted(inner, right, "left")
    values = shift_odds(np.array([*served.values, served.values[-1]]), odds)
    runs = np.column_stack((first, last + 1)).ravel()
    return np.minimum.reduceat(values, runs)[::2], np.maximum.reduceat(values, runs)[::2]


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

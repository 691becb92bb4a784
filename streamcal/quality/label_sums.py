"""Confidence intervals of served forecasts, by the sums of their labels since each of some starts.

All intervals of a family hold together with the stated probability, whenever they are looked at. Nothing is
assumed of scores and labels, neither independence nor one distribution: bounded is the mean, over the labels
since a start, of the difference that was to be expected just before each came (docs/proofs/verdict.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, NamedTuple

import numpy as np

from streamcal.base.values import BANDS, Flags, Floats

DELTA: Final = 0.05
"""Probability that any interval of a family ever misses what it bounds. A family are the gaps of the scores,
those of the served probabilities, or the gains."""

_MAIN: Final = 0.75  # share of the first start among all, and of all labels beside the bands
_SERIES: Final = 2.1098  # above the sum of 1/(k ln² k) over k ≥ 2
_NEWTON_STEPS: Final = 2
_MARGIN: Final = 0.95  # largest part that a label may take of a process
_TINY: Final = 2.0**-100
_ROUNDING: Final = 2.0**-22  # twice that of the sums, relative

EDGES: Final = np.array(BANDS)
_ENDS: Final = np.array([0.0, *BANDS, 1.0])
RANGES: Final[Floats] = np.exp2(np.arange(-11.0, 0.0))  # of what half a difference of squares may lose
_M: Final = len(BANDS) + 1
_R: Final = len(RANGES) + 1
COLUMNS: Final = 8 * _M + 6 * _R + 1
_BAND_SHARES: Final = np.array([_MAIN, *[(1.0 - _MAIN) / _M] * _M])  # of a start: all labels, and each band
_GAP_STAKES: Final = np.array([0.9 * 2.0**power for power in range(-13, 4)])
_GAIN_STAKES: Final = np.array([2.0**power for power in range(-8, 13)])


class Intervals(NamedTuple):
    """Means with their intervals; arrays of one shape, which begins with the starts."""

    labels: Floats
    """Number of labels; where it is 0, the means are NaN."""
    mean: Floats
    low: Floats
    high: Floats
    level: Floats
    """Mean forecast, or Brier score of the scores: the mean is a difference from it."""
    log_e: Floats
    """Logarithm of an e-value against a mean of 0, for this start and band alone."""
    log_share: Floats
    """Logarithm of its share: the sum of e-values times shares is an e-value, too."""


@dataclass(frozen=True, eq=False)
class LabelSums:
    """Sums over the labels since each of some starts, with the intervals that they give."""

    gap_stakes: ClassVar[Floats] = _GAP_STAKES
    gain_stakes: ClassVar[Floats] = _GAIN_STAKES

    labels: int
    """Number of labels since the first start."""
    starts: Sequence[int]
    """Number of labels before each start, ascending from 0."""
    times: Sequence[float | None]
    """Event time of a prediction near each start, in seconds; None: unknown."""
    sums: Floats
    """Sums of `add_sums` from each start until now, float64[starts, columns]."""
    shares: Floats
    """Share of `DELTA` that each start has, float64[starts]; those of all that may come sum to 1."""

    @property
    def unit(self) -> str:
        """Name of what means are over."""
        return "labels"

    def gaps(
        self, side: Literal["before", "after"], *, main: bool = False, delta: float = DELTA
    ) -> Intervals:
        """Return mean forecast − mean label since each start: of all labels, and of each band of forecasts.

        ``before`` is of the scores, ``after`` of the served probabilities. All arrays are
        float64[starts, 1 + bands]. The intervals of one side, for all starts, bands and times, hold together
        with probability 1 − ``delta``. With ``main``, only those of the first start are returned.
        """
        sums, processes = self._gap_processes(side, slice(0, 1 if main else None))
        log_share = np.log(_BAND_SHARES * self.shares[: len(sums), None])
        low, high, log_e = limits(processes, self.gap_stakes, log_share, delta)
        labels = sums[..., 0] + sums[..., 2]
        with np.errstate(invalid="ignore", divide="ignore"):
            forecast, rate = (sums[..., 1] + sums[..., 3]) / labels, sums[..., 2] / labels
            margin = _ROUNDING * (forecast + rate)
            low, high = -high / labels, -low / labels
        return Intervals(
            labels,
            forecast - rate,
            np.maximum(np.maximum(low, forecast - 1.0) - margin, -1.0),
            np.minimum(np.minimum(high, forecast) + margin, 1.0),
            forecast,
            log_e,
            log_share,
        )

    def gains(self, *, main: bool = False) -> Intervals:
        """Return the Brier score of the scores − that of the served probabilities since each start.

        All arrays are float64[starts]. Above 0, what was served is better. The intervals of all starts and
        times hold together with probability 1 − `DELTA`. With ``main``, only that of the first start is
        returned.
        """
        labels, sums, levels, processes = self._gain_processes(slice(0, 1 if main else None))
        log_share = np.log(self.shares[: len(sums)])
        low, high, log_e = limits(processes, self.gain_stakes, log_share)
        return Intervals(
            labels,
            2.0 * sums / labels,
            np.maximum(2.0 * low / labels, -1.0),
            np.minimum(2.0 * high / labels, 1.0),
            levels / labels,
            log_e,
            log_share,
        )

    def gaps_between(self, column: int) -> Callable[[int], tuple[Floats, Floats]]:
        """Return what gives the intervals of the gap from one start to each later one, in a column of `gaps`.

        Given the index of a start, it returns lower and upper ends, float64[later starts] each: those that
        `gaps` of the served probabilities had there.
        """
        sums, processes = (each[:, column] for each in self._gap_processes("after", slice(None)))
        shares = np.log(_BAND_SHARES[column] * self.shares)

        def between(start: int) -> tuple[Floats, Floats]:
            since, logs = sums[start] - sums[start + 1 :], processes[start] - processes[start + 1 :]
            low, high, _ = limits(logs, self.gap_stakes, np.full(len(since), shares[start]))
            labels = since[:, 0] + since[:, 2]
            with np.errstate(invalid="ignore", divide="ignore"):
                return -high / labels, -low / labels

        return between

    def counts(self) -> Floats:
        """Return the labels since each start, by band of the scores and class: float64[starts, bands, 2]."""
        return self.sums[:, : 4 * _M].reshape(-1, _M, 4)[..., ::2]

    def may_be_refuted(self) -> bool:
        """Return whether some gap may surely be other than 0, or some gain below 0: if not, none is.

        It costs a tenth of the intervals.
        """
        _, gaps = self._gap_processes("after", slice(None))
        losses = self._gain_processes(slice(None))[3][:, len(self.gain_stakes) :]
        least = -np.log(DELTA * self.shares)
        return bool(
            (gaps.max(axis=2) + np.log(_BAND_SHARES) >= least[:, None]).any()
            or (losses.max(axis=1) >= least).any()
        )

    def _gain_processes(self, starts: slice) -> tuple[Floats, Floats, Floats, Floats]:
        """Return labels, sum of half the gains, sum of losses, and logarithms of processes of some starts.

        The arrays are float64[starts], the last float64[starts, 2 stakes].
        """
        sums = self.sums[starts]
        halves = sums[:, 8 * _M : -1].reshape(-1, 2, 3 * _R)
        processes = np.concatenate([halves[:, 0] @ _GAINS_UP, halves[:, 1] @ _GAINS_DOWN], axis=-1)
        labels = self.labels - np.array(self.starts[starts], np.float64)
        return labels, halves[:, 0, ::3].sum(axis=1), sums[:, -1], processes

    def _gap_processes(self, side: Literal["before", "after"], starts: slice) -> tuple[Floats, Floats]:
        """Return the sums of some starts, of all forecasts and by band, with the logarithms of the processes.

        The arrays are float64[starts, 1 + bands, 4] and float64[starts, 1 + bands, 2 stakes].
        """
        which = slice(0, 4 * _M) if side == "before" else slice(4 * _M, 8 * _M)
        sums = self.sums[starts, which].reshape(-1, _M, 4)
        processes = (sums.transpose(1, 0, 2) @ _GAPS).transpose(1, 0, 2)
        both = (np.concatenate([own.sum(axis=1, keepdims=True), own], axis=1) for own in (sums, processes))
        sums, processes = both
        return sums, processes


def share(start: int) -> float:
    """Return the share of a start, by its number.

    Number 0 has `_MAIN`. The numbers 2^v (2 k + 1) share the rest in proportion to
    1/((v + 1)(v + 2)) · 1/((k + 2) ln²(k + 2)).
    """
    if not start:
        return _MAIN
    power = start & -start
    level, place = power.bit_length() - 1, (start // power) // 2
    series = (place + 2) * math.log(place + 2) ** 2 * _SERIES
    return (1.0 - _MAIN) / ((level + 1) * (level + 2) * series)


def limits(
    processes: Floats, stakes: Floats, log_share: Floats, delta: float = DELTA
) -> tuple[Floats, Floats, Floats]:
    """Return the limits of confidence sequences on sums of conditional means, and their evidence against 0.

    Parameters
    ----------
    processes
        logarithms of processes that are supermartingales once they are multiplied by exp(− stake · sum), for
        each stake and then for each stake with the other sign: float64[…, 2 stakes].
    stakes
        above 0: float64[stakes].
    log_share
        logarithm of the share of ``delta`` that each sequence may miss: float64[…].
    delta
        probability that any sequence ever misses.

    Returns
    -------
    Lower and upper limits, and logarithms of e-values: float64[…] each.
    """
    number = len(stakes)
    need = math.log(2 * number) - math.log(delta) - log_share
    low = _crossing(processes[..., :number], stakes, need)
    high = -_crossing(processes[..., number:], stakes, need)
    return low, high, _log_sum(processes) - math.log(2 * number)


def gain_table(largest: Floats, stakes: Floats, sign: int) -> Floats:
    """Return what each sum of differences adds to the logarithm of each process: float64[3 n, stakes].

    A difference d ≥ −c multiplies the process by exp(λ d − ψ(c λ) d²/c²), ψ(x) = −ln(1 − x) − x (Fan, Grama
    and Liu 2015); where c λ comes near 1, by exp(−λ) to the most that it can lose instead. The sums are of d,
    of d², and of that most, for each c in turn.

    Parameters
    ----------
    largest
        c, float64[n], at least 0.
    stakes
        λ, float64[stakes].
    sign
        −1: of the differences with the other sign.
    """
    c = np.maximum(largest, _TINY)[:, None]
    x = c * stakes
    safe = x < _MARGIN
    penalty = (-np.log1p(-np.where(safe, x, 0.0)) - x) / c**2
    parts = (
        np.where(safe, sign * stakes, 0.0),
        np.where(safe, -penalty, 0.0),
        np.where(safe, 0.0, -stakes),
    )
    return np.stack(parts, axis=1).reshape(3 * len(c), -1)


def discoveries(log_e: Floats) -> Flags:
    """Return which of n hypotheses fall by the procedure of Benjamini and Hochberg for e-values: bool[n].

    Of these at most `DELTA` are true on average, however the e-values depend on one another: float64[n], as
    logarithms. The procedure may be used at any time (Wang and Ramdas 2022).
    """
    order = np.argsort(-log_e, kind="stable")
    needed = np.log(len(log_e) / (DELTA * np.arange(1, len(log_e) + 1)))
    passed = np.flatnonzero(log_e[order] >= needed)
    found = np.zeros(len(log_e), np.bool_)
    if len(passed):
        found[order[: passed[-1] + 1]] = True
    return found


def _log_sum(logs: Floats) -> Floats:
    """Return ln Σ exp(logs) over the last axis."""
    top = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]).sum(axis=-1)))


def _crossing(logs: Floats, stakes: Floats, need: Floats) -> Floats:
    """Return the largest sum g with ln Σ exp(logs − stakes g) ≥ need, rounded down: float64[…].

    The left side is convex and falls, so Newton steps that begin left of the crossing stay there.
    """
    crossing = ((logs - need[..., None]) / stakes).max(axis=-1)
    for _ in range(_NEWTON_STEPS):
        exponents = logs - stakes * crossing[..., None]
        top = exponents.max(axis=-1, keepdims=True)
        weights = np.exp(exponents - top)
        total = weights.sum(axis=-1)
        excess = top[..., 0] + np.log(total) - need
        crossing = crossing + np.maximum(excess, 0.0) * total / (weights @ stakes)
    return np.asarray(crossing)


def _gap_table(sign: int) -> Floats:
    """Return what each sum of a band adds to the logarithm of each process: float64[bands, 4, stakes].

    A label y with forecast p multiplies the process by 1 + λ (y − p), λ = ± the stake. Its logarithm is
    concave in p, and so at least the chord between the ends of the band. Where the factor may come near 0,
    it is exp(−stake) to the most that y − p can lose instead: p for a label that seemed too high, 1 − p else.
    """
    begin, end = _ENDS[:-1, None], _ENDS[1:, None]
    table = np.empty((_M, 4, len(_GAP_STAKES)))
    stake = sign * _GAP_STAKES
    safe = _GAP_STAKES * (end if sign > 0 else 1.0 - begin) < _MARGIN
    for label in (0, 1):
        with np.errstate(divide="ignore", invalid="ignore"):
            first, last = (np.log1p(stake * (label - p)) for p in (begin, end))
            slope = (last - first) / (end - begin)
            table[:, 2 * label] = np.where(safe, first - slope * begin, 0.0 if sign > 0 else -_GAP_STAKES)
            table[:, 2 * label + 1] = np.where(safe, slope, -stake)
    return table


_GAPS: Final = np.concatenate([_gap_table(1), _gap_table(-1)], axis=-1)
_GAINS_UP, _GAINS_DOWN = (gain_table(np.append(RANGES, 1.0), _GAIN_STAKES, sign) for sign in (1, -1))

"""Confidence sequences of served forecasts: their gap and their gain, over all labels and over the latest.

A confidence sequence is an interval after every label; all of them hold together with the stated probability,
so it may be read at any time. Nothing is assumed of scores and labels, neither independence nor one
distribution: bounded is the mean, over the labels that came, of the difference that was to be expected just
before each came (docs/proofs/verdict.md).

What is kept depends on the order of the labels alone, and is bounded: sums since each of some starts,
which lie dense in the near past and thin in the far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.quality.sums_c import add_sums
from streamcal.sketch.decoding import MOST, Count, Finite, require, within
from streamcal.values import Flags, Floats

__all__ = ["BANDS", "DELTA", "STRIDE", "Intervals", "Sequences", "discoveries", "limits"]

BANDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99)
"""Between the bands of forecasts; a forecast at an edge is in the band above it."""

STRIDE: Final = 256
"""Labels between two starts in the near past."""

DELTA: Final = 0.05
"""Probability that any interval of a family ever misses what it bounds. A family are the gaps of the scores,
those of the served probabilities, or the gains."""

_MAIN: Final = 0.75  # share of the first start among all, and of all labels beside the bands
_SERIES: Final = 2.1098  # above the sum of 1/(k ln² k) over k ≥ 2
_NEWTON_STEPS: Final = 2
_MARGIN: Final = 0.95  # largest part that a label may take of a process
_ROUNDING: Final = 2.0**-22  # twice that of the sums, relative

_BAND_EDGES: Final = np.array(BANDS)
_ENDS: Final = np.array([0.0, *BANDS, 1.0])
_RANGES: Final[Floats] = np.exp2(np.arange(-11.0, 0.0))  # of what half a difference of squares may lose
_M: Final = len(BANDS) + 1
_R: Final = len(_RANGES) + 1
_COLUMNS: Final = 8 * _M + 6 * _R + 1
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


class Sequences(msgspec.Struct):
    """Confidence sequences of one stream of forecasts; its fields are its state.

    Examples
    --------
    >>> sequences = Sequences()
    >>> sequences.add(np.full((2, 10_000), 0.5), np.ones(10_000), np.arange(10_000.0))
    >>> sequences.starts
    [0, 4096, 6144, 7168, 8192, 8704, 9216, 9472, 9728, 9984]
    >>> gaps = sequences.gaps("after")
    >>> float(gaps.mean[0, 0]), float(gaps.high[0, 0].round(3))
    (-0.5, -0.481)
    """

    labels: Count = 0
    """Number of labels."""
    starts: list[Count] = []
    """Number of labels before each start: 0, and multiples of `STRIDE`, ascending; of the multiples of each
    power of two times it, about the latest three."""
    times: list[Finite | None] = []
    """Latest event time of a prediction whose label had come at each start, in seconds; None: unknown."""
    parts: list[npt.NDArray[np.float32]] = []
    """Sums from each start to the next, but for the last start: float32[columns] each."""
    open: Floats = msgspec.field(default_factory=lambda: np.zeros(_COLUMNS))
    """Sums since the last start: float64[columns]."""
    latest: Finite | None = None
    """Latest event time of a prediction with a label, in seconds; None: unknown."""

    def __post_init__(self) -> None:
        """Check a decoded state; raise ValueError if it is none."""
        number = -(-self.labels // STRIDE)
        expected = [each * STRIDE for each in range(number) if _is_kept(each, number - 1)]
        require(self.starts == expected, f"the starts are not those of {self.labels} labels")
        fits = len(self.times) == len(expected) and len(self.parts) == max(len(expected) - 1, 0)
        require(fits, "a start needs its time and its sums")
        for part in self.parts:
            within(part, -MOST, MOST, "sums of a sequence", _COLUMNS)
        within(self.open, -MOST, MOST, "sums of a sequence", _COLUMNS)

    def add(self, forecasts: Floats, labels: Floats, times: Floats) -> None:
        """Add forecasts with their labels, in the order in which the labels came.

        Parameters
        ----------
        forecasts
            scores, and the probabilities that were served: float64[2, n] in [0, 1].
        labels
            each 0 or 1: float64[n].
        times
            event times of the predictions, in seconds; NaN: unknown. float64[n].
        """
        at, forecasts = 0, np.ascontiguousarray(forecasts)
        while at < len(labels):
            end = min(len(labels), at + STRIDE - self.labels % STRIDE)
            if not self.labels % STRIDE:
                self._see(times[at : at + 1])
                self._begin(self.latest)
            self._see(times[at:end])
            add_sums(self.open, _BAND_EDGES, _RANGES, forecasts, labels, at, end)
            self.labels += end - at
            at = end

    def gaps(
        self, side: Literal["before", "after"], *, main: bool = False, delta: float = DELTA
    ) -> Intervals:
        """Return mean forecast − mean label since each start: of all labels, and of each band of forecasts.

        ``before`` is of the scores, ``after`` of the served probabilities. All arrays are
        float64[starts, 1 + bands]. The intervals of one side, for all starts, bands and times, hold together
        with probability 1 − ``delta``. With ``main``, only those of the first start are returned.
        """
        sums, processes = self._gap_processes(side, slice(0, 1 if main else None))
        log_share = np.log(_BAND_SHARES * self._shares[: len(sums), None])
        low, high, log_e = limits(processes, _GAP_STAKES, log_share, delta)
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
        sums = self._sums[: 1 if main else None]
        halves = sums[:, 8 * _M : -1].reshape(-1, 2, 3 * _R)
        log_share = np.log(self._shares[: len(sums)])
        processes = np.concatenate([halves[:, 0] @ _GAINS_UP, halves[:, 1] @ _GAINS_DOWN], axis=-1)
        low, high, log_e = limits(processes, _GAIN_STAKES, log_share)
        labels = self.labels - np.array(self.starts[: len(sums)], np.float64)
        return Intervals(
            labels,
            2.0 * halves[:, 0, ::3].sum(axis=1) / labels,
            np.maximum(2.0 * low / labels, -1.0),
            np.minimum(2.0 * high / labels, 1.0),
            sums[:, -1] / labels,
            log_e,
            log_share,
        )

    def gaps_between(self, column: int) -> Callable[[int], tuple[Floats, Floats]]:
        """Return what gives the intervals of the gap from one start to each later one, in a column of `gaps`.

        Given the index of a start, it returns lower and upper ends, float64[later starts] each: those that
        `gaps` of the served probabilities had there.
        """
        sums, processes = (each[:, column] for each in self._gap_processes("after", slice(None)))
        shares = np.log(_BAND_SHARES[column] * self._shares)

        def between(start: int) -> tuple[Floats, Floats]:
            since, logs = sums[start] - sums[start + 1 :], processes[start] - processes[start + 1 :]
            low, high, _ = limits(logs, _GAP_STAKES, np.full(len(since), shares[start]))
            labels = since[:, 0] + since[:, 2]
            with np.errstate(invalid="ignore", divide="ignore"):
                return -high / labels, -low / labels

        return between

    def differences(self) -> Floats:
        """Return the mean difference of score and served probability, without its sign: float64[starts].

        It is since each start. The extremes of half the difference of their squared errors lie so far apart.
        """
        extremes = self._sums[:, 8 * _M + 2 : -1 : 3].sum(axis=1)
        return np.asarray(extremes / (self.labels - np.array(self.starts, np.float64)))

    def counts(self) -> Floats:
        """Return the labels since each start, by band of the scores and class: float64[starts, bands, 2]."""
        return self._sums[:, : 4 * _M].reshape(-1, _M, 4)[..., ::2]

    def may_be_refuted(self) -> bool:
        """Return whether some gap may surely be other than 0, or some gain below 0: if not, none is.

        It costs a tenth of the intervals.
        """
        _, gaps = self._gap_processes("after", slice(None))
        losses = self._sums[:, 8 * _M + 3 * _R : -1] @ _GAINS_DOWN
        least = -np.log(DELTA * self._shares)
        return bool(
            (gaps.max(axis=2) + np.log(_BAND_SHARES) >= least[:, None]).any()
            or (losses.max(axis=1) >= least).any()
        )

    def _gap_processes(self, side: Literal["before", "after"], starts: slice) -> tuple[Floats, Floats]:
        """Return the sums of some starts, of all forecasts and by band, with the logarithms of the processes.

        The arrays are float64[starts, 1 + bands, 4] and float64[starts, 1 + bands, 2 stakes].
        """
        which = slice(0, 4 * _M) if side == "before" else slice(4 * _M, 8 * _M)
        sums = self._sums[starts, which].reshape(-1, _M, 4)
        processes = (sums.transpose(1, 0, 2) @ _GAPS).transpose(1, 0, 2)
        both = (np.concatenate([own.sum(axis=1, keepdims=True), own], axis=1) for own in (sums, processes))
        sums, processes = both
        return sums, processes

    @property
    def _sums(self) -> Floats:
        """Sums from each start until now, float64[starts, columns]."""
        if not self.starts:
            return np.empty((0, _COLUMNS))
        parts = np.array([*self.parts, self.open], np.float64)
        return np.cumsum(parts[::-1], axis=0)[::-1]

    @property
    def _shares(self) -> Floats:
        """Share of `DELTA` that each start has, float64[starts]; those of all that may come sum to 1."""
        return np.array([_share(start // STRIDE) for start in self.starts])

    def _see(self, times: Floats) -> None:
        """Take note of the event times of predictions; NaN: unknown."""
        latest = float(np.fmax.reduce(times))
        if not math.isnan(latest):
            self.latest = latest if self.latest is None else max(latest, self.latest)

    def _begin(self, time: float | None) -> None:
        """Begin a start, and forget those that lie too near to one another."""
        number = self.labels // STRIDE
        if number:
            self.parts.append(self.open.astype(np.float32))
            self.open = np.zeros(_COLUMNS)
        self.starts.append(self.labels)
        self.times.append(time)
        for at in range(number and len(self.starts) - 2, 0, -1):
            if not _is_kept(self.starts[at] // STRIDE, number):
                self.parts[at - 1] = self.parts[at - 1] + self.parts[at]
                del self.starts[at], self.times[at], self.parts[at]


def _is_kept(start: int, now: int) -> bool:
    """Return whether a start is kept: near in comparison with the power of two that divides its number."""
    return not start or now - start <= 3 * (start & -start)


def _share(start: int) -> float:
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


def _gain_table(sign: int) -> Floats:
    """Return what each sum of a range adds to the logarithm of each process: float64[3 ranges, stakes].

    A difference d ≥ −c multiplies the process by exp(λ d − ψ(c λ) d²/c²), ψ(x) = −ln(1 − x) − x (Fan, Grama
    and Liu 2015); where c λ comes near 1, by exp(−λ) to the most that it can lose instead.
    """
    largest = np.append(_RANGES, 1.0)[:, None]
    x = largest * _GAIN_STAKES
    safe = x < _MARGIN
    penalty = (-np.log1p(-np.where(safe, x, 0.0)) - x) / largest**2
    parts = (
        np.where(safe, sign * _GAIN_STAKES, 0.0),
        np.where(safe, -penalty, 0.0),
        np.where(safe, 0.0, -_GAIN_STAKES),
    )
    return np.stack(np.broadcast_arrays(*parts), axis=1).reshape(3 * _R, -1)


_GAPS: Final = np.concatenate([_gap_table(1), _gap_table(-1)], axis=-1)
_GAINS_UP, _GAINS_DOWN = _gain_table(1), _gain_table(-1)

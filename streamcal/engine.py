"""Recalibrator: the engine. It learns labelled scores, re-forms the map on schedule, and applies it.

State: one labelled sketch a domain, one sketch of unlabelled target scores, the map h as it was last formed,
and the join of `Recalibrator.step`. Memory is bounded by ``max_cells`` and ``max_pending``.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from streamcal import binning, grid
from streamcal.config import JoinConfig, RecalibratorConfig
from streamcal.errors import DamagedStateError
from streamcal.join import Join, Joined
from streamcal.maps import RecalibrationMap, shift_correction_one
from streamcal.priors import LabelWindow, class_prior, shift_weights
from streamcal.schedule import FIRST_LABELS, Schedule
from streamcal.sketch import ScoreSketch
from streamcal.types import (
    Domain,
    Emission,
    Event,
    LabelledEvent,
    MapPublished,
    PredictionEvent,
    Recalibrated,
)

__all__ = ["DomainSummary", "Recalibrator"]

_MAGIC: Final = b"SCRC"
_FORMAT: Final = 1
_LENGTH: Final = struct.Struct("<I")
_BLOCK: Final = 4096  # single labels are gathered before they are sorted into the sketch


class DomainSummary(msgspec.Struct, frozen=True):
    """What is known of one domain."""

    labels: int
    """Number of labelled scores."""
    positives: int
    """Those of them with label 1."""
    prior: float | None
    """Smoothed estimate of the probability of class 1 (the target's from its ``prior_window``), None
    before the first label."""
    scores: int
    """Number of scores observed without regard to their label (target only)."""


class _LabelLog:
    """A labelled sketch with a buffer in front; counts are always up to date."""

    __slots__ = ("buffer", "n", "positives", "recent", "sketch")

    def __init__(self, sketch: ScoreSketch, recent: LabelWindow | None = None) -> None:
        self.sketch = sketch
        self.n = sketch.n
        self.positives = sketch.n_positives
        self.recent = recent
        self.buffer: list[tuple[float, int]] = []

    @property
    def prior_counts(self) -> tuple[int, int]:
        """(positives, labels) that the prior is estimated from."""
        counted = self if self.recent is None else self.recent
        return counted.positives, counted.n

    def append(self, score: float, label: int) -> None:
        self.buffer.append((score, label))
        self.n += 1
        self.positives += label
        if self.recent is not None:
            self.recent.append(label)
        if len(self.buffer) >= _BLOCK:
            self.flush()

    def extend(self, scores: npt.NDArray[np.float64], labels: npt.NDArray[np.int8]) -> None:
        self.flush()
        self.sketch._add(scores, labels)
        self.n += len(labels)
        self.positives += int(np.count_nonzero(labels))
        if self.recent is not None:
            self.recent.extend(labels.tolist())

    def flush(self) -> None:
        if self.buffer:
            scores, labels = zip(*self.buffer, strict=True)
            self.sketch._add(np.array(scores, np.float64), np.array(labels, np.int8))
            self.buffer.clear()


class Recalibrator:
    """Turn scores into probabilities, and keep doing so while labels arrive.

    Parameters
    ----------
    config
        all options in one object, or
    **options
        each by its name, see `RecalibratorConfig`.
    join
        options of the join that `step` uses.

    Raises
    ------
    ValueError
        on an option that is unknown or out of range (pydantic.ValidationError), or if both ``config`` and
        options are given.

    Examples
    --------
    >>> engine = Recalibrator(bins=2)
    >>> engine.predict_one(0.7)
    0.7
    >>> engine.learn_many([0.2, 0.4, 0.7, 0.9] * 32, [0, 0, 0, 1] * 32)
    >>> engine.version, engine.predict_one(0.7)
    (8, 0.5)
    """

    def __init__(
        self,
        config: RecalibratorConfig | None = None,
        *,
        join: JoinConfig | None = None,
        **options: Any,
    ) -> None:
        if config is not None and options:
            raise ValueError(f"give either a config or options, got both: {sorted(options)}")
        self._config = config or RecalibratorConfig(**options)
        self._schedule = Schedule(self._config.growth)
        cells = self._config.max_cells
        window = self._config.prior_window
        self._logs = {
            "source": _LabelLog(ScoreSketch(cells)),
            "target": _LabelLog(ScoreSketch(cells), LabelWindow(window) if window else None),
        }
        self._traffic = ScoreSketch(cells, labelled=False)
        self._observed: list[float] = []
        self._refreshes = 0
        self._formed_from: Domain = "target" if self._config.mode == "target" else "source"
        self._base = RecalibrationMap(version=0)
        self._join = Join(join)
        self._weights: tuple[float, float] | None = None
        self._settle()

    # What it knows

    @property
    def config(self) -> RecalibratorConfig:
        """The options."""
        return self._config

    @property
    def map(self) -> RecalibrationMap:
        """The map that is served now, with the current weights of the shift correction."""
        return self._base.model_copy(update={"version": self.version, "weights": self._current_weights()})

    @property
    def version(self) -> int:
        """The number of the served map version: 0 for the identity, before the first."""
        return self._version

    @property
    def source(self) -> DomainSummary:
        """Counts and prior of the source domain."""
        return self._summary("source", 0)

    @property
    def target(self) -> DomainSummary:
        """Counts and prior of the target domain."""
        return self._summary("target", self._traffic.n + len(self._observed))

    @property
    def join(self) -> Join:
        """The join of predictions and labels that `step` uses."""
        return self._join

    # Learning

    def learn_one(self, score: float, label: int, domain: Domain = "source") -> None:
        """Learn one score in [0, 1] with its label, 0 or 1.

        Raises
        ------
        ValueError
            if the score is no number in [0, 1], the label does not equal 0 or 1, or the domain is neither
            ``"source"`` nor ``"target"``; nothing is learned then.
        """
        score, label = grid.check_score(score), grid.check_label(label)
        log = self._log(domain)
        log.append(score, label)
        self._weights = None
        if log.n >= self._next[domain]:
            self._on_schedule(domain)

    def learn_many(self, scores: Any, labels: Any, domain: Domain = "source") -> None:
        """Learn n scores with their labels, as n calls of `learn_one` would.

        Parameters
        ----------
        scores, labels
            array-likes of length n: numpy, lists, pandas, polars or Arrow columns.
        domain
            where they come from.

        Raises
        ------
        ValueError
            as `learn_one`, with the index of the first bad value, or if the lengths differ; nothing is
            learned then.
        """
        values, classes = grid.as_scores(scores), grid.as_labels(labels)
        if len(values) != len(classes):
            raise ValueError(f"{len(values)} scores but {len(classes)} labels")
        log = self._log(domain)
        end = log.n + len(values)
        passed = self._schedule.passed(end)
        if end >= self._next[domain]:
            # Maps of the versions in between would be served to nobody: only the last is formed.
            split = self._schedule.count(passed - 1) - log.n
            log.extend(values[:split], classes[:split])
            self._on_schedule(domain)
            values, classes = values[split:], classes[split:]
        log.extend(values, classes)
        self._weights = None

    def observe_one(self, score: float) -> None:
        """Take note of a target score whose label is not known (yet).

        Raises
        ------
        ValueError
            if it is no number in [0, 1].
        """
        self._observed.append(grid.check_score(score))
        if len(self._observed) >= _BLOCK:
            self._flush()

    def observe_many(self, scores: Any) -> None:
        """Take note of n target scores, as n calls of `observe_one` would.

        Raises
        ------
        ValueError
            as `observe_one`, with the index of the first bad value; nothing is noted then.
        """
        self._traffic._add(grid.as_scores(scores), None)

    def refresh(self) -> None:
        """Re-form the map from all labels so far, off schedule: a new version."""
        self._refreshes += 1
        self._form()
        self._settle()

    def merge(self, other: Recalibrator) -> None:
        """Add all that another engine has learned and observed, and re-form the map: a new version.

        Pending predictions of its join stay with the other. Under ``prior_window``, the other's labels count
        as the later ones.

        Raises
        ------
        ValueError
            if the two were made with different options; it names them.
        """
        mine, theirs = self._config.model_dump(), other._config.model_dump()
        unlike = [name for name, value in mine.items() if theirs[name] != value]
        if unlike:
            raise ValueError(f"cannot merge engines that differ in {', '.join(unlike)}")
        for domain, log in self._logs.items():
            other._logs[domain].flush()
            log.flush()
            log.sketch.merge(other._logs[domain].sketch)
            later = other._logs[domain].recent
            if log.recent is not None and later is not None:
                log.recent.extend(later.labels)
            self._logs[domain] = _LabelLog(log.sketch, log.recent)
        other._flush()
        self._flush()
        self._traffic.merge(other._traffic)
        self._refreshes += other._refreshes
        self.refresh()

    # Predicting

    def predict_one(self, score: float) -> float:
        """Return the probability in [0, 1] of one score; before the first map, the score itself.

        Raises
        ------
        ValueError
            if it is no number in [0, 1].
        """
        return shift_correction_one(self._base.base_one(grid.check_score(score)), self._current_weights())

    def predict_many(self, scores: Any) -> npt.NDArray[np.float64]:
        """Return the probability of every score, float64[n], as n calls of `predict_one` would.

        Raises
        ------
        ValueError
            as `predict_one`, with the index of the first bad value.
        """
        return self.map.predict_many(scores)

    # Events

    def step(self, event: Event) -> tuple[Emission, ...]:
        """Take one event of a stream: answer a prediction, join a label, learn.

        Returns
        -------
        `Recalibrated` at once for a prediction, `MapPublished` when a new version is served from now on,
        `Rejected` for an event that changed nothing.

        Raises
        ------
        ValueError
            if the event holds a score or a label that is none; nothing has changed then.
        """
        if isinstance(event, PredictionEvent | LabelledEvent):
            grid.check_score(event.score)
        if not isinstance(event, PredictionEvent):
            grid.check_label(event.label)
        return self._join.step(event, lambda _: self)

    def answer(self, event: PredictionEvent | LabelledEvent) -> Recalibrated:
        """Return the probability of a prediction, and observe its score if it is of the target."""
        probability = self.predict_one(event.score)
        if event.domain == "target":
            self.observe_one(event.score)
        return Recalibrated(event.id, event.score, probability, self._version, self._current_weights())

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Learn from a joined label; return the new map if that re-formed it."""
        version = self._version
        self.learn_one(joined.score, joined.label, joined.domain)
        return (MapPublished(self.map),) if self._version != version else ()

    # State

    def to_bytes(self) -> bytes:
        """Return the whole state; equal states give equal bytes."""
        self._flush()
        for log in self._logs.values():
            log.flush()
        recent = self._logs["target"].recent
        parts = [
            self._config.model_dump_json().encode(),
            self._join.config.model_dump_json().encode(),
            self._base.model_dump_json().encode(),
            msgspec.json.encode((self._refreshes, self._formed_from, recent.labels if recent else [])),
            self._logs["source"].sketch.to_bytes(),
            self._logs["target"].sketch.to_bytes(),
            self._traffic.to_bytes(),
            self._join.to_bytes(),
        ]
        body = _MAGIC + bytes([_FORMAT]) + b"".join(_LENGTH.pack(len(part)) + part for part in parts)
        return body + _LENGTH.pack(zlib.crc32(body))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore an engine from `to_bytes`; safe on bytes from anywhere.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state; the message says what is wrong.
        """
        parts = _parts(data)
        try:
            config = RecalibratorConfig.model_validate_json(parts[0])
            join_config = JoinConfig.model_validate_json(parts[1])
            base = RecalibrationMap.model_validate_json(parts[2])
            refreshes, formed_from, recent = msgspec.json.decode(
                parts[3], type=tuple[int, Domain, list[Literal[0, 1]]]
            )
        except (ValidationError, msgspec.DecodeError) as error:
            raise DamagedStateError(f"engine state is damaged: {error}") from None
        source, target, traffic = (ScoreSketch.from_bytes(part) for part in parts[4:7])
        if (source.labelled, target.labelled, traffic.labelled) != (True, True, False) or {
            sketch.max_cells for sketch in (source, target, traffic)
        } != {config.max_cells}:
            raise DamagedStateError("engine state is damaged: its sketches are not those of its options")
        engine = cls(config)
        window = engine._logs["target"].recent
        if window is not None:
            window.extend(recent)
        engine._logs = {"source": _LabelLog(source), "target": _LabelLog(target, window)}
        engine._traffic, engine._base, engine._refreshes = traffic, base, refreshes
        engine._formed_from = formed_from
        engine._join = Join.from_bytes(parts[7], join_config)
        engine._settle()
        return engine

    # Inside

    def _log(self, domain: str) -> _LabelLog:
        try:
            return self._logs[domain]
        except KeyError:
            raise ValueError(f"a domain must be 'source' or 'target', got {domain!r}") from None

    def _summary(self, domain: Domain, scores: int) -> DomainSummary:
        log = self._logs[domain]
        prior = class_prior(*log.prior_counts, self._config.prior_smoothing) if log.n else None
        return DomainSummary(log.n, log.positives, prior, scores)

    def _flush(self) -> None:
        if self._observed:
            self._traffic._add(np.array(self._observed, np.float64), None)
            self._observed.clear()

    def _current_weights(self) -> tuple[float, float]:
        if self._weights is None:
            self._weights = (
                (1.0, 1.0)
                if self._config.mode == "source" or self._formed_from == "target"
                else shift_weights(
                    self._logs["source"].prior_counts,
                    self._logs["target"].prior_counts,
                    self._config.prior_smoothing,
                )
            )
        return self._weights

    def _on_schedule(self, domain: Domain) -> None:
        """Start the version that is due now that a domain's labels have reached a scheduled count."""
        if domain == self._domain_to_form_from():
            self._form()
        self._settle()

    def _settle(self) -> None:
        """Work out, from the counts, the version and when the next is due."""
        domains: tuple[Domain, ...] = ("source", "target")
        if self._config.mode in ("source", "target"):
            domains = (self._config.mode,)
        passed = {domain: self._schedule.passed(self._logs[domain].n) for domain in domains}
        self._version = sum(passed.values()) + self._refreshes
        self._next: dict[str, float] = {"source": np.inf, "target": np.inf}
        self._next |= {domain: self._schedule.count(count) for domain, count in passed.items()}
        self._weights = None

    def _domain_to_form_from(self) -> Domain:
        source, target = self._logs["source"], self._logs["target"]
        if self._config.mode == "auto" and source.n < min(FIRST_LABELS, target.n):
            return "target"
        return "target" if self._config.mode == "target" else "source"

    def _form(self) -> None:
        """Form h from the labels so far."""
        domain = self._domain_to_form_from()
        log = self._logs[domain]
        if self._config.mode == "label_shift" or not log.n:
            return
        self._formed_from = domain
        log.flush()
        self._base = _step_map(log.sketch, self._config.bins)


def _step_map(sketch: ScoreSketch, rule: binning.BinRule) -> RecalibrationMap:
    """Return the uniform-mass map of a labelled sketch (eq. 10)."""
    cells = sketch.cells
    negatives, positives = sketch.counts
    totals = negatives + positives
    if rule == "auto":
        bins = binning.choose_bins(negatives, positives)
    elif rule == "cube_root":
        bins = binning.cube_root(sketch.n)
    else:
        bins = rule
    splits = binning.uniform_mass(totals, bins)
    means = binning.bin_sums(positives, splits) / binning.bin_sums(totals, splits)
    # A bin ends where its last cell does: what falls between two occupied cells belongs to the upper bin.
    inner = grid.left_edges(cells[splits[1:-1] - 1] + np.int32(1), sketch.level)
    return RecalibrationMap(version=0, edges=(0.0, *inner.tolist(), 1.0), values=tuple(means.tolist()))


def _parts(data: bytes) -> list[bytes]:
    """Split the bytes of a state, and check that they are whole."""
    if data[:4] != _MAGIC:
        raise DamagedStateError(f"not an engine state: it begins with {data[:4]!r}, not {_MAGIC!r}")
    if data[4:5] != bytes([_FORMAT]):
        raise DamagedStateError(f"engine state format {data[4:5]!r} is unknown here, {_FORMAT} is known")
    body = data[:-4]
    if len(data) < 9 or _LENGTH.pack(zlib.crc32(body)) != data[-4:]:
        raise DamagedStateError("engine state checksum does not match: the bytes were altered or cut")
    parts, place = [], 5
    while place + 4 <= len(body):
        (length,) = _LENGTH.unpack_from(body, place)
        parts.append(body[place + 4 : place + 4 + length])
        place += 4 + length
    if place != len(body) or len(parts) != 8:
        raise DamagedStateError(f"engine state has {len(parts)} parts, 8 expected")
    return parts

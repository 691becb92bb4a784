"""Adaptive: mode ``auto`` of an engine, around the tracked mixture: source generations, and the served map.

While label shift is not refuted, the map of the source is a candidate, and with it what follows from it by
label shift. After an alarm these are out; the labels of the target from then on become the next generation of
the source. Before the first label of the target there is no mixture: nothing speaks against what the source
alone gives, and re-forming it costs no more than in the other modes.
"""

from __future__ import annotations

from array import array
from typing import Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.engine.emissions import Mixing
from streamcal.errors import DamagedStateError
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import class_prior, shift_correction
from streamcal.mixture.mixture import FIRST_STEP, Mixed, Mixture
from streamcal.sketch.label_log import LabelLog, Labels, Scores
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["GENERATION", "Adaptive"]

_SMOOTHING: Final = 0.5  # Krichevsky–Trofimov

GENERATION: Final = 4096
"""How many target labels after an alarm make the next generation of the source."""


class _State(msgspec.Struct):
    steps: int
    served: bytes
    mixing: Mixing | None
    mixture: bytes | None
    scores: bytes
    labels: bytes
    seen: bytes
    gathered: bytes | None
    source: tuple[bytes, float] | None


class Adaptive:
    """What an engine serves in mode ``auto``.

    Parameters
    ----------
    max_cells
        that of the engine's sketches.
    """

    __slots__ = (
        "_gathered",
        "_labels",
        "_made",
        "_max_cells",
        "_renewed",
        "_scores",
        "_seen",
        "_source",
        "mixing",
        "room",
        "served",
        "steps",
    )

    def __init__(self, max_cells: int) -> None:
        self._max_cells = max_cells
        self._made: Mixture | None = None  # not before there is a label: of many keys most have few
        self._scores, self._labels, self._seen = array("d"), bytearray(), array("q")  # not counted yet
        self._gathered: LabelLog | None = None
        self._renewed = False  # whether the next source map is of a new generation
        self._source: tuple[RecalibrationMap, float] | None = None  # h_P and the source's prior
        self.served = RecalibrationMap(version=0)
        """The mixture as it was last mixed."""
        self.mixing: Mixing | None = None
        """How it is mixed; None before the first step."""
        self.steps = 0
        """How many map versions the counts of target labels have begun."""
        self._set_room()

    def take_next_source(self) -> LabelLog | None:
        """Return the next generation of the source, once it has enough labels: label shift may hold again."""
        gathered = self._gathered
        if gathered is None or gathered.n < GENERATION:
            return None
        self._gathered = None
        self._renewed = True
        return gathered

    def learn(self, score: float, label: int, seen: int | None) -> bool:
        """Take one target label; return whether anything is due (`step_due`)."""
        self._scores.append(score)
        self._labels.append(label)
        self._seen.append(-1 if seen is None else seen)
        if self._gathered is not None:
            self._gathered.append(score, label, None)
        self.room -= 1
        return self.room <= 0

    def learn_many(self, scores: Scores, labels: Labels, seen: int | None) -> bool:
        """Take at most `room` target labels; return whether anything is due (`step_due`)."""
        self._scores.frombytes(np.ascontiguousarray(scores, np.float64).tobytes())
        self._labels += np.ascontiguousarray(labels, np.int8).tobytes()
        self._seen.extend((-1 if seen is None else seen,) * len(scores))
        if self._gathered is not None:
            self._gathered.extend(scores, labels, None)
        self.room -= len(scores)
        return self.room <= 0

    @property
    def step_due(self) -> bool:
        """Whether what is due, when there is no `room` left, is a step: if not, it is to `reweigh`."""
        return self._mixture.n + len(self._labels) >= self._mixture.next_step

    @property
    def begun(self) -> bool:
        """Whether there is a mixture."""
        return self._made is not None

    def begin(self, sketch: ScoreSketch, seen: int, prior: float | None) -> None:
        """Begin to mix, at the first label of the target.

        Parameters
        ----------
        sketch
            of the labelled scores of the source.
        seen, prior
            as in `step`.
        """
        self._made = Mixture()
        if self._source is not None:
            self._made.set_source(self._source[0], sketch)
        self._made.step(seen, prior)
        self._set_room()

    def set_source(self, uniform_mass: RecalibrationMap, sketch: ScoreSketch) -> None:
        """Take h_P, formed anew from this sketch, for the source's candidates."""
        if self._made is not None:
            waiting = len(self._labels) - self._made.weighed
            self._made.set_source(uniform_mass, sketch, new_generation=self._renewed, waiting=waiting)
        self._renewed = False
        self._source = uniform_mass, class_prior(sketch.n_positives, sketch.n, _SMOOTHING) or 0.5

    def refute_label_shift(self) -> None:
        """Take out what rests on label shift, and begin to gather the next generation of the source."""
        self._mixture.refute_label_shift()
        self._gathered = LabelLog(self._max_cells)

    def step(self, seen: int, prior: float | None) -> None:
        """Weigh the candidates by the labels since the last step, and mix them anew.

        Parameters
        ----------
        seen
            how many target scores were observed so far.
        prior
            the target prior estimated from scores, if it is.
        """
        if self._made is not None:
            self.steps += self.room <= 0
            self._count(self._made)
            self._scores, self._labels, self._seen = array("d"), bytearray(), array("q")
            self._serve(self._made.step(seen, prior))
            self._set_room()
        elif self._source is not None:
            self.served, source_prior = self._source
            leader = "source/uniform/all"
            if prior is not None:
                leader = "composite/uniform/fused"
                weights = (1.0 - prior) / (1.0 - source_prior), prior / source_prior
                values = shift_correction(np.array(self.served.values), weights)
                self.served = self.served.model_copy(update={"values": tuple(values.tolist())})
            self.mixing = Mixing(leader, {leader: 1.0})

    def reweigh(self) -> bool:
        """Weigh the candidates by the labels since it was last done; return whether that began a version."""
        self._weigh(self._mixture)
        mixed = self._mixture.remix()
        self._set_room()
        if mixed is None:
            return False
        self.steps += 1
        self._serve(mixed)
        return True

    def merge(self, other: Self) -> None:
        """Add what the other learned, as later labels; if it has begun to mix, this one must have, too."""
        if other._made is not None:
            theirs = Mixture.from_bytes(other._made.to_bytes())
            other._count(theirs)
            self._count(self._mixture)
            self._scores, self._labels, self._seen = array("d"), bytearray(), array("q")
            self._mixture.merge(theirs)
        self.steps = max(self.steps, other.steps)
        self._set_room()

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        return msgspec.msgpack.encode(
            _State(
                self.steps,
                self.served.model_dump_json().encode(),
                self.mixing,
                None if self._made is None else self._made.to_bytes(),
                self._scores.tobytes(),
                bytes(self._labels),
                self._seen.tobytes(),
                None if self._gathered is None else self._gathered.to_bytes(),
                self._source and (self._source[0].model_dump_json().encode(), self._source[1]),
            )
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
            self.served = RecalibrationMap.model_validate_json(state.served)
            if state.source is not None:
                uniform_mass = RecalibrationMap.model_validate_json(state.source[0])
                self._source = uniform_mass, state.source[1]
        except ValueError as error:  # those of msgspec and of pydantic alike
            raise DamagedStateError(f"not the state of mode auto: {error}") from None
        self.steps, self.mixing = state.steps, state.mixing
        self._made = None if state.mixture is None else Mixture.from_bytes(state.mixture)
        self._restore_labels(state)
        self._set_room()
        self._gathered = None
        if state.gathered is not None:
            self._gathered = LabelLog(self._max_cells).restore(state.gathered)
        return self

    @property
    def _mixture(self) -> Mixture:
        if self._made is None:
            raise RuntimeError("no mixture before `begin`")
        return self._made

    def _weigh(self, mixture: Mixture) -> None:
        """Have a mixture weigh the labels here that it has not weighed."""
        first = mixture.weighed
        mixture.weigh(
            np.frombuffer(self._scores)[first:],
            np.frombuffer(self._labels, np.int8)[first:],
            np.frombuffer(self._seen, np.int64)[first:],
        )

    def _count(self, mixture: Mixture) -> None:
        """Have a mixture weigh and count the labels here."""
        self._weigh(mixture)
        mixture.count(np.frombuffer(self._scores), np.frombuffer(self._labels, np.int8))

    def _restore_labels(self, state: _State) -> None:
        n = len(state.labels)
        if len(state.scores) != 8 * n or len(state.seen) != 8 * n:
            raise DamagedStateError(f"{n} labels of {len(state.scores)} and {len(state.seen)} bytes")
        scores, labels = np.frombuffer(state.scores), np.frombuffer(state.labels, np.int8)
        seen: npt.NDArray[np.int64] = np.frombuffer(state.seen, np.int64)
        weighed = 0 if self._made is None else self._made.weighed
        if weighed > n or (n and self._made is None):
            raise DamagedStateError(f"{weighed} labels are weighed, of {n}")
        if n and (labels.min() < 0 or labels.max() > 1 or seen.min() < -1):
            raise DamagedStateError("labels of mode auto are damaged")
        if not ((scores >= 0.0) & (scores <= 1.0)).all():
            raise DamagedStateError("scores of mode auto are not in [0, 1]")
        self._scores, self._labels = array("d", state.scores), bytearray(state.labels)
        self._seen = array("q", state.seen)

    def _serve(self, mixed: Mixed) -> None:
        self.served, self.mixing = mixed

    def _set_room(self) -> None:
        self.room = FIRST_STEP
        """How many target labels are missing until a step is due, or to reweigh."""
        if self._made is not None:
            self.room = self._made.next_weighing - self._made.n - len(self._labels)

"""Auto: mode ``auto`` of an engine, around the tracked mixture: when it is mixed anew, and from which source.

While label shift is not refuted, the source's map is a candidate, and so are the maps that follow from it by
label shift. After an alarm these are out, and the target's labels from then on become the next generation of
the source. Before the first target label there is no mixture: nothing speaks against the source's map, and to
re-form it costs no more than in the other modes.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec
import numpy as np

from streamcal.engine.domain_labels import DomainLabels
from streamcal.errors import DamagedStateError
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import class_prior, shift_correction, shift_weights
from streamcal.mixture.mixture import STRIDE, Mixed, Mixing, Mixture
from streamcal.mixture.names import NAMES
from streamcal.sketch.decoding import Number, Probability, decoded
from streamcal.sketch.label_log import LabelLog
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["GENERATION", "Auto"]

_SMOOTHING: Final = 0.5  # Krichevsky–Trofimov

GENERATION: Final = 4096
"""How many target labels after an alarm make the next generation of the source."""


class _State(msgspec.Struct):
    steps: Number
    served: bytes
    mixing: Mixing | None
    mixture: bytes | None
    uncounted: int
    generation: tuple[bytes, int] | None
    source: tuple[bytes, Probability] | None


class Auto:
    """What an engine serves in mode ``auto``.

    Parameters
    ----------
    max_cells
        that of the engine's sketches.
    target
        the target's labels, which the mixture reads.
    """

    __slots__ = (
        "_counted",
        "_gathered",
        "_generation",
        "_max_cells",
        "_mixture",
        "_renewed",
        "_source",
        "_target",
        "mixing",
        "served",
        "steps",
    )

    def __init__(self, max_cells: int, target: DomainLabels) -> None:
        self._max_cells = max_cells
        self._target = target
        self._mixture: Mixture | None = None  # none before there is a label: of many keys most have few
        self._counted = 0  # number of the first target label that is not in the mixture's windows
        self._generation: LabelLog | None = None  # gathers the next source after an alarm
        self._gathered = 0  # number of the first target label that is not in it
        self._renewed = False  # whether the next source map is of a new generation
        self._source: tuple[RecalibrationMap, float] | None = None  # h_P and the source's prior
        self.served = RecalibrationMap(version=0)
        """The map as it was last mixed."""
        self.mixing: Mixing | None = None
        """How it is mixed; None before the first step."""
        self.steps = 0
        """How many map versions the counts of target labels have begun."""

    @property
    def begun(self) -> bool:
        """Whether there is a mixture."""
        return self._mixture is not None

    @property
    def room(self) -> int:
        """How many target labels may come before `begin`, `reweigh` or `step` is due."""
        if self._mixture is None:
            return 1
        return self._mixture.next_weighing - self._labels(self._mixture)

    @property
    def step_due(self) -> bool:
        """Whether a step is due; where there is no `room` and no step is due, it is `reweigh` that is."""
        return self._mixture is not None and self._labels(self._mixture) >= self._mixture.next_step

    @property
    def sourced(self) -> bool:
        """Whether there is a source."""
        return self._source is not None

    @property
    def observed(self) -> int:
        """How many target scores were observed before the last step; 0 where there is no mixture."""
        return 0 if self._mixture is None else self._mixture.observed

    @property
    def read(self) -> int:
        """The number of the first target label that is still to be read."""
        end = self._target.end
        counted = end if self._mixture is None else self._counted
        return counted if self._generation is None else min(counted, self._gathered)

    def begin(self, sketch: ScoreSketch, observed: int, prior: float | None, first: int) -> None:
        """Begin to mix, at the first target label.

        Parameters
        ----------
        sketch
            of the labelled scores of the source.
        observed, prior
            as in `step`.
        first
            the number of that label.
        """
        self._mixture = Mixture()
        if self._source is not None:
            self._mixture.set_source(self._source[0], sketch)
        self._mixture.step(observed, prior)
        self._counted = first

    def set_source(self, uniform_mass: RecalibrationMap, sketch: ScoreSketch) -> None:
        """Take h_P, formed anew from this sketch, for the candidates that follow from the source."""
        if self._mixture is not None:
            waiting = self._target.end - self._counted - self._mixture.weighed
            self._mixture.set_source(uniform_mass, sketch, new_generation=self._renewed, waiting=waiting)
        self._renewed = False
        self._source = uniform_mass, class_prior(sketch.n_positives, sketch.n, _SMOOTHING) or 0.5

    def step(self, observed: int, prior: float | None) -> None:
        """Weigh the candidates by the labels since the last step, fit what is due, and mix anew.

        Parameters
        ----------
        observed
            how many target scores were observed so far.
        prior
            the target's prior as far as scores tell of it; None where they are not asked.
        """
        if self._mixture is not None:
            self.steps += self.room <= 0
            self._count(self._mixture)
            self._serve(self._mixture.step(observed, prior))
        elif self._source is not None:
            self.served, source_prior = self._source
            leader = "source/uniform/all"
            if prior is not None:
                leader = "composite/uniform/fused"
                weights = shift_weights(source_prior, prior)
                values = shift_correction(np.array(self.served.values), weights)
                self.served = self.served.model_copy(update={"values": tuple(values.tolist())})
            self.mixing = Mixing(leader, {leader: 1.0})

    def reweigh(self) -> bool:
        """Weigh the candidates by the labels since it was last done; return whether that began a version."""
        if self._mixture is None:
            return False
        self._weigh(self._mixture)
        mixed = self._mixture.remix()
        if mixed is None:
            return False
        self.steps += 1
        self._serve(mixed)
        return True

    # Generations of the source

    def refute_label_shift(self) -> None:
        """Take out what rests on label shift, and gather the next generation of the source from now on."""
        if self._mixture is not None:
            self._mixture.refute_label_shift()
        self._generation = LabelLog(self._max_cells)
        self._gathered = self._target.end

    def gather(self) -> None:
        """Add the latest target labels to the next generation of the source, if one is being gathered."""
        if self._generation is not None:
            run = self._target.since(self._gathered)
            self._generation.add(run.scores, run.labels)
            self._gathered = self._target.end

    def take_generation(self) -> LabelLog | None:
        """Return the next generation of the source once it has enough labels: label shift may hold again."""
        if self._generation is None:
            return None
        if self._generation.n + self._target.end - self._gathered < GENERATION:
            return None
        self.gather()
        generation, self._generation = self._generation, None
        self._renewed = True
        return generation

    def merge(self, other: Self) -> None:
        """Add what the other learned, as later labels; if it has begun to mix, this one must have, too."""
        if other._mixture is not None and self._mixture is not None:
            # What comes to the other later must not depend on this: a copy reads its labels.
            theirs = Mixture.from_bytes(other._mixture.to_bytes())
            run = other._target.since(other._counted)
            weighed = theirs.weighed
            theirs.weigh(run.scores[weighed:], run.labels[weighed:], run.seen[weighed:])
            theirs.count(run.scores, run.labels)
            self._count(self._mixture)
            self._mixture.merge(theirs)
        self.steps = max(self.steps, other.steps)

    # State

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        self.gather()
        generation = None
        if self._generation is not None:
            generation = self._generation.to_bytes(), self._target.end - self._gathered
        return msgspec.msgpack.encode(
            _State(
                self.steps,
                self.served.model_dump_json().encode(),
                self.mixing,
                None if self._mixture is None else self._mixture.to_bytes(),
                0 if self._mixture is None else self._target.end - self._counted,
                generation,
                self._source and (self._source[0].model_dump_json().encode(), self._source[1]),
            )
        )

    def restore(self, data: bytes) -> Self:
        """Replace the state by what `to_bytes` gave; the target's labels must be restored before.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        state = decoded(data, _State, "mode auto")
        try:
            self.served = RecalibrationMap.model_validate_json(state.served)
            if state.source is not None:
                uniform_mass = RecalibrationMap.model_validate_json(state.source[0])
                self._source = uniform_mass, state.source[1]
        except ValueError as error:
            raise DamagedStateError(f"not the state of mode auto: {error}") from None
        if self._source is not None and not self._source[0].values:
            raise DamagedStateError("not the state of mode auto: its source has a map without bins")
        if state.mixing is not None and not {state.mixing.leader, *state.mixing.weights} <= {*NAMES}:
            raise DamagedStateError("not the state of mode auto: it mixes candidates that do not exist")
        self.steps, self.mixing = state.steps, state.mixing
        self._mixture = None if state.mixture is None else Mixture.from_bytes(state.mixture)
        if self._mixture is not None and self._mixture.stride != STRIDE:
            raise DamagedStateError(f"not the state of mode auto: a mixture of stride {self._mixture.stride}")
        self._counted = self._target.number_back(state.uncounted)
        if self._mixture is not None and self._mixture.weighed > state.uncounted:
            raise DamagedStateError(f"{self._mixture.weighed} labels weighed, of {state.uncounted}")
        self._generation = None
        if state.generation is not None:
            self._generation = LabelLog(self._max_cells).restore(state.generation[0])
            self._gathered = self._target.number_back(state.generation[1])
        return self

    # Inside

    def _labels(self, mixture: Mixture) -> int:
        """Return how many target labels came to the mixture, counted or not."""
        return mixture.n + self._target.end - self._counted

    def _weigh(self, mixture: Mixture) -> None:
        run = self._target.since(self._counted + mixture.weighed)
        if len(run.labels):
            mixture.weigh(run.scores, run.labels, run.seen)

    def _count(self, mixture: Mixture) -> None:
        self._weigh(mixture)
        run = self._target.since(self._counted)
        if len(run.labels):
            mixture.count(run.scores, run.labels)
            self._counted = self._target.end

    def _serve(self, mixed: Mixed) -> None:
        self.served, self.mixing = mixed.map, mixed.mixing

"""Step of one event through join and engine, and its results in order.

The join says what an event means: a new prediction, a label that met its prediction, a duplicate. The engine
answers and learns. Neither calls the other; `step` asks both, one after the other.

A prediction that matures is learned before the event whose time matures it (`emit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from streamcal.engine.emissions import Emission, Recalibrated
from streamcal.events import Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.join.entries import Memo
from streamcal.join.join_c import Join, OriginOf
from streamcal.join.outcomes import Contradicted, EarlyPositive, Joined, Rejected

__all__ = ["Learner", "Outcome", "emit", "emitted", "step"]

Outcome: TypeAlias = Emission | Joined
"""Results of one event; a `Joined` stands before the emissions of its label."""


class Learner(Protocol):
    """Interface of an `Engine` to `step`: it answers predictions and learns from joined labels."""

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, Memo | None, tuple[Emission, ...]]:
        """Return the answer, the number of target scores observed before, the memo, and the emissions.

        The join keeps the memo with the prediction, and gives it back with the label; None: there is none.
        """

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Learn from a prediction that met its label; return the emissions."""

    def observe_early(self, positive: EarlyPositive) -> tuple[Emission, ...]:
        """Note a positive label whose prediction is not matured; return the emissions."""

    def contradict(self, contradicted: Contradicted) -> None:
        """Note a label 1 of a prediction that was learned as 0 for want of one; it begins nothing."""


def step(
    event: Event,
    join: Join,
    engine_of: Callable[[str | None], Learner],
    origin_of: OriginOf | None = None,
) -> tuple[Outcome, ...]:
    """Take one event, in the order of arrival.

    Parameters
    ----------
    event
        a prediction, a label, or both in one.
    join
        the join that matches labels with predictions.
    engine_of
        function that returns the engine for an event's ``key``.
    origin_of
        function that returns the event's origin, if the event does not hold it; called only when it is
        rejected or waits.

    Returns
    -------
    The predictions that mature by this event's time, each with its emissions, and the rejects of earlier
    events that expire by it; then the answer to a prediction, the label that it met and its emissions; or the
    reject of this event.
    """
    rows, expired, time = join.rows, tuple[Outcome, ...](), event.time
    if time is not None and rows.move(time):
        expired = emit(join.expire(), engine_of)
    if type(event) is not LabelEvent and isinstance(event, PredictionEvent):
        outcomes = _prediction(event, join, engine_of(event.key), origin_of)
    elif isinstance(event, LabelEvent):
        outcomes = _label(event, join, engine_of, origin_of)
    else:
        outcomes = _labelled(event, join, engine_of, origin_of)
    return (*expired, *outcomes) if expired else outcomes


def emitted(outcomes: tuple[Outcome, ...]) -> tuple[Emission, ...]:
    """Return outcomes without the joined labels."""
    return tuple([outcome for outcome in outcomes if type(outcome) is not Joined])  # type: ignore[misc]


def emit(left: Iterable[Outcome], engine_of: Callable[[str | None], Learner]) -> tuple[Outcome, ...]:
    """Let engines learn matured predictions; return these with their emissions."""
    outcomes: list[Outcome] = []
    for each in left:
        outcomes += _learned(each, engine_of(each.key)) if isinstance(each, Joined) else (each,)
    return tuple(outcomes)


def _prediction(
    event: PredictionEvent | LabelledEvent,
    join: Join,
    engine: Learner,
    origin_of: OriginOf | None,
) -> tuple[Outcome, ...]:
    refused = join.admit(event, origin_of)
    if refused is not None:
        return (refused,)
    answer, prediction_index, memo, begun = engine.answer(event)
    kept = (answer.map_version, *answer.weights) if join.rows.keeps_answers else None
    early = join.take_early(str(event.id)) if join.matures else None
    joined = join.hold(event, answer.probability, prediction_index, kept, memo)
    if joined is not None:
        return (answer, *begun, *_learned(joined, engine))
    if early is None:
        return (answer, *begun)
    return (
        answer,
        *begun,
        *_met(join.finalize(early), engine),
        *_met(join.match(early, origin_of, is_new=False), engine),
    )


def _learned(joined: Joined, engine: Learner) -> tuple[Outcome, ...]:
    """Let an engine learn a prediction with its label; return both, with the emissions."""
    return (joined, *engine.learn(joined))


def _met(
    met: Joined | EarlyPositive | Contradicted | Rejected | None, engine: Learner
) -> tuple[Outcome, ...]:
    """Return the outcome of a label, with the emissions of the engine of its prediction."""
    if isinstance(met, Contradicted):
        engine.contradict(met)
        return (met.outcome,)
    if isinstance(met, Joined):
        return _learned(met, engine)
    if isinstance(met, EarlyPositive):
        return engine.observe_early(met)
    return () if met is None else (met,)


def _label(
    event: LabelEvent,
    join: Join,
    engine_of: Callable[[str | None], Learner],
    origin_of: OriginOf | None,
) -> tuple[Outcome, ...]:
    ripe = join.finalize(event) if join.matures else None
    before = () if ripe is None else _met(ripe, engine_of(ripe.key))
    found = join.match(event, origin_of)
    if isinstance(found, Joined):
        return _learned(found, engine_of(found.key))  # nothing was ripe, or it would not wait
    if found is None or isinstance(found, Rejected):
        return before if found is None else (*before, found)
    return (*before, *_met(found, engine_of(found.key)))


def _labelled(
    event: LabelledEvent,
    join: Join,
    engine_of: Callable[[str | None], Learner],
    origin_of: OriginOf | None,
) -> tuple[Outcome, ...]:
    """Take prediction and label in turn; of a prediction that came before, only the label."""
    engine = engine_of(event.key)
    if event.id is None:
        answer, prediction_index, memo, begun = engine.answer(event)
        joined = join.join(event, answer.probability, prediction_index, memo)
        return (answer, *begun, *_learned(joined, engine))
    answered = () if join.knows(event.id) else _prediction(event, join, engine, origin_of)
    label = LabelEvent(event.id, event.label, event.time, event.origin, event.weight)
    return (*answered, *_label(label, join, engine_of, origin_of))

"""One event through join and engine: what becomes of it, in order.

The join says what an event means: a new prediction, a label that met its prediction, a duplicate. The engine
answers and learns. Neither calls the other; `step` asks both, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from streamcal.engine.emissions import Emission, Recalibrated
from streamcal.events import Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.join.join import Join, Joined, OriginOf

__all__ = ["Learner", "Outcome", "step"]

Outcome: TypeAlias = Emission | Joined
"""What comes out of one event; a `Joined` stands before what its label has taught."""


class Learner(Protocol):
    """What answers predictions and learns from joined labels: an `Engine`."""

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, tuple[Emission, ...]]:
        """Return the answer, how many target scores were observed before, and what the score begins."""

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Learn from a prediction that met its label; return what that begins."""


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
        matches labels with predictions.
    engine_of
        gives the engine for an event's ``key``.
    origin_of
        gives the event's origin, if it does not hold it; asked only when it is rejected or waits.

    Returns
    -------
    The rejects of earlier events that expire by this one's time; then the answer to a prediction, the label
    that it met and what that taught; or the reject of this event.
    """
    time = event.time
    expired = () if time is None else join.move_to(time)
    if isinstance(event, PredictionEvent):
        outcomes = _prediction(event, join, engine_of(event.key), origin_of)
    elif isinstance(event, LabelEvent):
        outcomes = _label(event, join, engine_of, origin_of)
    else:
        outcomes = _labelled(event, join, engine_of, origin_of)
    return (*expired, *outcomes) if expired else outcomes


def _prediction(
    event: PredictionEvent | LabelledEvent,
    join: Join,
    engine: Learner,
    origin_of: OriginOf | None,
) -> tuple[Outcome, ...]:
    refused = join.admit(event, origin_of)
    if refused is not None:
        return (refused,)
    answer, seen, begun = engine.answer(event)
    kept = (answer.map_version, *answer.weights) if join.keeps_answers else None
    joined = join.hold(event, answer.probability, seen, kept)
    return (answer, *begun) if joined is None else (answer, *begun, joined, *engine.learn(joined))


def _label(
    event: LabelEvent,
    join: Join,
    engine_of: Callable[[str | None], Learner],
    origin_of: OriginOf | None,
) -> tuple[Outcome, ...]:
    found = join.match(event, origin_of)
    if isinstance(found, Joined):
        return (found, *engine_of(found.key).learn(found))
    return () if found is None else (found,)


def _labelled(
    event: LabelledEvent,
    join: Join,
    engine_of: Callable[[str | None], Learner],
    origin_of: OriginOf | None,
) -> tuple[Outcome, ...]:
    """Take prediction and label in turn; of a prediction that came before, only the label."""
    engine = engine_of(event.key)
    if event.id is None:
        answer, seen, begun = engine.answer(event)
        joined = join.join(event, answer.probability, seen)
        return (answer, *begun, joined, *engine.learn(joined))
    answered = () if join.knows(event.id) else _prediction(event, join, engine, origin_of)
    label = LabelEvent(event.id, event.label, event.time, event.origin, event.weight)
    return (*answered, *_label(label, join, engine_of, origin_of))

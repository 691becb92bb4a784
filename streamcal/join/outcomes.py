"""Outcomes of predictions and labels in the join: the records that it returns, and their counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from streamcal.events import Domain, Event, LabelEvent, LabelledEvent, Origin, PredictionEvent
from streamcal.events.codes import Code, Refusal
from streamcal.events.guard import ClockState, GuardState
from streamcal.join.entries import Memo
from streamcal.join.packs import Pack

OriginOf: TypeAlias = Callable[[], Origin | None]
"""Function that returns the origin of an event; called only when it is needed."""

T = TypeVar("T", PredictionEvent, LabelEvent, LabelledEvent, PredictionEvent | LabelledEvent, Event)

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class Rejected(Refusal, frozen=True, kw_only=True):
    """A rejected event, which changed nothing: the code and the fields of its reason."""

    event: Event


class Joined(msgspec.Struct, frozen=True, gc=False):
    """A prediction with its label, and the probability that was answered."""

    score: float
    probability: float
    label: int
    domain: Domain
    predicted_at: float | None = None
    """Event time of the prediction, in seconds; None if it had none."""
    labelled_at: float | None = None
    """Event time of the label, in seconds; None if it had none."""
    prediction_index: int = 0
    """Number of target scores that the engine had observed before it answered the prediction."""
    key: str | None = None
    """Key of the prediction."""
    matured_at: float | None = None
    """Time in seconds at which the prediction matured, by which its label counts; None: when the label
    came."""
    weight: float = 1.0
    """Weight of the label, see `streamcal.events.LabelEvent.weight`; None: 1."""
    memo: Memo | None = None
    """Values that the engine wanted back with the label."""
    decided: int = 0
    """Decision that was kept with the prediction; 0: none."""


class EarlyPositive(msgspec.Struct, frozen=True, gc=False):
    """A label 1 that came before its prediction matured: it is not joined yet."""

    score: float
    predicted_at: float
    """Event time of the prediction, in seconds."""
    labelled_at: float
    """Event time of the label, in seconds; not before that of the prediction."""
    domain: Domain
    key: str | None
    """Key of the prediction."""


class Contradicted(msgspec.Struct, frozen=True, gc=False):
    """A first label 1 of a prediction that was joined with 0 for want of a label."""

    domain: Domain
    """Domain of the prediction."""
    key: str | None
    """Key of the prediction."""
    outcome: Rejected
    """Reject of the label."""


class JoinCounts(msgspec.Struct):
    """Numbers of events by their outcome."""

    predictions: _Count = 0
    """Predictions taken, including those that came together with their label."""
    labels: _Count = 0
    """Labels read, whatever their outcome."""
    joined: _Count = 0
    """Predictions that were joined with a label that came."""
    early: _Count = 0
    """Labels that came before their prediction."""
    late: _Count = 0
    """Labels that changed nothing because they came after their prediction had expired, or had been learned
    as 0 without them."""
    duplicate: _Count = 0
    """Predictions and labels whose id already had one."""
    conflicting: _Count = 0
    """Labels that differ from an earlier label of the same id; also counted as duplicates if they changed
    nothing."""
    expired: _Count = 0
    """Predictions whose label did not come in time."""
    unmatched: _Count = 0
    """Labels whose prediction did not come in time."""
    implied: _Count = 0
    """Predictions that matured without a label, and were joined with 0."""
    contradicted: _Count = 0
    """Labels 1 of predictions that had been joined with 0 for want of a label; also counted as late."""


class JoinState(msgspec.Struct, omit_defaults=True):
    """State of the join; where there is a store, without its entries, which are in order of arrival."""

    clock: ClockState = ClockState()
    start: float | None = None
    """First time that the clock showed, in seconds."""
    counts: JoinCounts = msgspec.field(default_factory=JoinCounts)
    packs: list[Pack] = []
    guard: GuardState = GuardState()


def rejected(event: Event, origin_of: OriginOf | None, code: Code, **fields: object) -> Rejected:
    """Return the reject of an event, for the reason with a code."""
    return Rejected(code, {"id": event.id, **fields}, event=with_origin(event, origin_of))


def with_origin(event: T, origin_of: OriginOf | None) -> T:
    """Return an event that names its origin, if that is known."""
    if origin_of is None or event.origin is not None:
        return event
    return msgspec.structs.replace(event, origin=origin_of())

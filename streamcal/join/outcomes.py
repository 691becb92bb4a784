"""What becomes of predictions and labels in the join: the records that it returns, and the counts."""

from __future__ import annotations

from typing import Annotated

import msgspec

from streamcal.events import Domain, Event

__all__ = ["Contradicted", "JoinCounts", "Joined", "Rejected", "Relabelled", "Told"]

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class Rejected(msgspec.Struct, frozen=True):
    """An event that changed nothing, and why."""

    event: Event
    reason: str


class Joined(msgspec.Struct, frozen=True, gc=False):
    """A prediction with its label, and what was forecast when the prediction was made."""

    score: float
    probability: float
    label: int
    domain: Domain
    predicted_at: float | None = None
    """Event time of the prediction, if it had one."""
    labelled_at: float | None = None
    """Event time of the label, if it had one."""
    seen: int = 0
    """How many target scores the engine had observed before it answered the prediction."""
    key: str | None = None
    """That of the prediction."""
    matured_at: float | None = None
    """When the prediction was matured: the time by which its label counts. None: when the label came."""
    weight: float = 1.0
    """What the label counts for: see `streamcal.events.LabelEvent.weight`."""


class Told(msgspec.Struct, frozen=True, gc=False):
    """A positive label, told before its prediction is matured: it is not joined yet."""

    score: float
    predicted_at: float
    """Event time of the prediction."""
    told_at: float
    """Event time of the label, not before that."""
    domain: Domain
    key: str | None
    """That of the prediction."""


class Relabelled(msgspec.Struct, frozen=True, gc=False):
    """A label that was learned is another one."""

    score: float
    label: int
    """The new one; the old one is ``1 - label``."""
    domain: Domain
    predicted_at: float | None
    labelled_at: float | None
    """The time by which the old one counted."""
    seen: int
    """As in `Joined`."""
    key: str | None


class Contradicted(msgspec.Struct, frozen=True, gc=False):
    """A first label 1 of a prediction that was joined with 0 for want of a label."""

    domain: Domain
    """Domain of the prediction."""
    key: str | None
    """Key of the prediction."""
    outcome: Relabelled | Rejected
    """What becomes of the label: with corrections it is learned, else rejected."""


class JoinCounts(msgspec.Struct):
    """How many events met which end."""

    predictions: _Count = 0
    """Predictions taken, those that came together with their label among them."""
    labels: _Count = 0
    """Labels read, whatever became of them."""
    joined: _Count = 0
    """Predictions that were joined with a label that was told."""
    early: _Count = 0
    """Labels that came before their prediction."""
    late: _Count = 0
    """Labels that came after their prediction had expired, or had been learned as 0 for want of them, and
    changed nothing."""
    duplicate: _Count = 0
    """Predictions and labels whose id had one already."""
    corrected: _Count = 0
    """Labels unlike one that was told before; duplicates, too, if they changed nothing."""
    expired: _Count = 0
    """Predictions whose label did not come in time."""
    unmatched: _Count = 0
    """Labels whose prediction did not come in time."""
    implied: _Count = 0
    """Predictions that matured without a label, and were joined with 0."""
    contradicted: _Count = 0
    """Labels 1 of predictions that had been joined with 0 for want of a label; late, too, if they changed
    nothing."""

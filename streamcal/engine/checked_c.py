"""Checks of the events that `Recalibrator.step` takes, by the rules of files and topics."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from streamcal.engine.config import RecalibratorConfig
from streamcal.events import DOMAINS, Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.codes import Refusal
from streamcal.sketch.checks import check_label, check_score
from streamcal.sketch.weighing import ONE, check_weight, units_of
from streamcal.times import LATEST, read_time
from streamcal.values import check_domain, check_id, check_key, shown

__all__ = ["checked", "lacks_time", "refuses_weight"]

_PLAIN: Final = 128  # characters; a longer id may have too many bytes


def checked(event: Event) -> Event:
    """Return an event whose fields have the types that they are declared with; its time stays in its unit.

    Raises
    ------
    ValueError
        if a field has a wrong type or value; the message names it.
    """
    given: Any = event
    kind = type(event)  # asking isinstance of another type would take as long as all else here
    is_prediction = kind is PredictionEvent or (kind is not LabelEvent and isinstance(event, PredictionEvent))
    is_label = kind is LabelEvent or (kind is not PredictionEvent and isinstance(event, LabelEvent))
    if not (is_prediction or is_label or isinstance(event, LabelledEvent)):
        raise ValueError(
            f"an event must be a PredictionEvent, LabelEvent or LabelledEvent, got {shown(event)}"
        )
    # The usual types pass by a glance; what remains is checked, or refused, at length.
    changed: dict[str, Any] = {}
    id_, time = event.id, event.time
    if type(id_) is not str or not 0 < len(id_) <= _PLAIN or not id_.isascii():
        changed["id"] = check_id(id_)
        if changed["id"] is None and (is_prediction or is_label):
            raise ValueError("a prediction or a label needs an id")
    if time is not None and (type(time) is not float or not -LATEST < time < LATEST):
        changed["time"] = read_time(time)
    if not is_label:
        if type(given.score) is not float or not 0.0 <= given.score <= 1.0:
            changed["score"] = check_score(given.score)
        if given.key is not None:
            changed["key"] = check_key(given.key)
        if given.domain not in DOMAINS:
            changed["domain"] = check_domain(given.domain)
    if not is_prediction and (type(given.label) is not int or given.label not in (0, 1)):
        changed["label"] = check_label(given.label)
    if event.weight is not None:
        changed["weight"] = check_weight(event.weight)
    return msgspec.structs.replace(event, **changed) if changed else event


def lacks_time(event: Event, config: RecalibratorConfig) -> Refusal | None:
    """Return why an event without a time is refused, None if it is not: only labels need one."""
    if event.time is not None or isinstance(event, PredictionEvent) or not config.needs_time:
        return None
    return Refusal("missing_time", {"kind": "a label", "window": config.window})


def refuses_weight(event: Event, config: RecalibratorConfig) -> Refusal | None:
    """Return why the weight of an event is refused, None if it is not: some options allow none."""
    why = config.why_unweighted
    if why is None or event.weight is None or units_of(event.weight) == ONE:
        return None
    return Refusal("weight_not_allowed", {"weight": event.weight, "option": why})

"""Alarms with what to do about them: their record, and their line in the log."""

from __future__ import annotations

from typing import Final

from streamcal.certificates.record import (
    IMPLIED,
    LABEL_SHIFT_REFUTED,
    MONOTONE_REFUTED,
    identically_distributed,
)
from streamcal.engine.emissions import DriftAlarm
from streamcal.events import DOMAINS
from streamcal.monitor.status import Alarm
from streamcal.run.rows import CALIBRATED, AlarmRow, advice

__all__ = ["advised", "in_words", "title"]

_TITLES: Final = {
    LABEL_SHIFT_REFUTED: "The scores within the classes changed, not only the share of the classes.",
    MONOTONE_REFUTED: "Somewhere a higher score means a lower probability.",
    IMPLIED: "Labels 1 came after their predictions had counted as 0.",
    **{
        identically_distributed(domain): f"The labels of the {domain} changed over time, or their scores did."
        for domain in DOMAINS
    },
}
"""By the assumption that is refuted, or how it begins: what was found."""


def advised(alarm: DriftAlarm | AlarmRow) -> Alarm:
    """Return an alarm with its advice."""
    words = alarm.advice if isinstance(alarm, AlarmRow) else advice(alarm.assumption)
    return Alarm(alarm.key, alarm.assumption, alarm.reason, alarm.target_labels, words)


def title(alarm: DriftAlarm | AlarmRow) -> str:
    """Return what was found, in a sentence; of forecasts, it is how the reason begins."""
    assumption = alarm.assumption
    if assumption == CALIBRATED:
        sentence, ends, _ = alarm.reason.partition(". ")
        return f"{sentence}." if ends else sentence
    return _TITLES[IMPLIED if assumption.startswith(IMPLIED) else assumption]


def in_words(alarm: AlarmRow) -> str:
    """Return an alarm as a line of the log."""
    which = "" if alarm.key is None else f" [{alarm.key}]"
    found = alarm.reason
    if alarm.assumption != CALIBRATED:
        found = f"{title(alarm)} Refuted: {alarm.assumption} ({found})."
    return f"alarm{which}: {found} {alarm.advice}".rstrip()

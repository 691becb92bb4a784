"""Alarms in the status of a run, and in its log."""

from __future__ import annotations

from typing import TypeVar

from streamcal.monitor.status import Alarm
from streamcal.run.rows import AlarmRow

__all__ = ["alarm_of", "in_words"]


A = TypeVar("A", bound=Alarm)


def alarm_of(row: AlarmRow, kind: type[A]) -> A:
    """Return an alarm without its number and time."""
    return kind(row.key, row.code, row.assumption, row.title, row.reason, row.target_labels, row.advice)


def in_words(alarm: AlarmRow) -> str:
    """Return an alarm as a line of the log."""
    which = "" if alarm.key is None else f" [{alarm.key}]"
    found = alarm.reason if alarm.code == "forecasts" else f"Refuted: {alarm.assumption} ({alarm.reason})."
    return f"alarm{which}: {alarm.title} {found} {alarm.advice}".rstrip()

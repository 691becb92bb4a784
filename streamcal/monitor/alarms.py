"""Alarms with what to do about them: their record, and their line in the log."""

from __future__ import annotations

from streamcal.engine.emissions import DriftAlarm
from streamcal.monitor.status import Alarm
from streamcal.run.rows import AlarmRow, advice

__all__ = ["advised", "in_words"]


def advised(alarm: DriftAlarm | AlarmRow) -> Alarm:
    """Return an alarm with its advice."""
    words = alarm.advice if isinstance(alarm, AlarmRow) else advice(alarm.assumption)
    return Alarm(alarm.key, alarm.assumption, alarm.reason, alarm.target_labels, words)


def in_words(alarm: AlarmRow) -> str:
    """Return an alarm as a line of the log."""
    which = "" if alarm.key is None else f" [{alarm.key}]"
    return f"alarm{which}, refuted: {alarm.assumption} ({alarm.reason}). {alarm.advice}"

"""An alarm with what to do about it: its row, its record, and its line in the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from streamcal.certificates.record import IMPLIED, LABEL_SHIFT_REFUTED, MONOTONE_REFUTED
from streamcal.engine.emissions import DriftAlarm
from streamcal.run.rows import AlarmRow
from streamcal.run.status import Alarm

__all__ = ["ADVICE", "advised", "alarm_row", "in_words"]

ADVICE: Final = {
    LABEL_SHIFT_REFUTED: (
        "Within the classes the scores have changed, not only the share of the classes: another population, a"
        " changed feature, a new model. Claims that rest on label shift are withdrawn. Find out what changed."
        " Mode auto goes on by the target's labels; in another mode, give a new --calibration, or take mode"
        " auto."
    ),
    MONOTONE_REFUTED: (
        "Somewhere a higher score means a lower probability. Nothing is certified of the map. Check that the"
        " score is that of class 1 (--positive), and that the ids join each label to its own prediction. If"
        " so, the score has lost its meaning there: recalibration hides that, only a new model repairs it."
    ),
    IMPLIED: (
        "Positives come later than [join] label_delay_limit, and their predictions were learned as 0:"
        " the map is too low. Nothing is certified of the target. Raise label_delay_limit to the time in"
        " which nearly all positives come, and start anew: without corrections = true, what was learned"
        " as 0 stays 0."
    ),
}
"""By the assumption that is refuted, or how it begins: what follows from it, and what to do."""


def alarm_row(alarm: DriftAlarm, alarms: Sequence[DriftAlarm], time: float | None) -> AlarmRow:
    """Return the row of an alarm.

    Parameters
    ----------
    alarms
        those of its engine, itself among them; there, none has a key.
    time
        the clock when it was raised: event time, seconds since the epoch.
    """
    number = alarms.index(msgspec.structs.replace(alarm, key=None)) + 1
    advice = _advice(alarm.assumption)
    return AlarmRow(number, alarm.key, time, alarm.assumption, alarm.reason, alarm.target_labels, advice)


def advised(alarm: DriftAlarm | AlarmRow) -> Alarm:
    """Return an alarm with its advice."""
    advice = _advice(alarm.assumption)
    return Alarm(alarm.key, alarm.assumption, alarm.reason, alarm.target_labels, advice)


def _advice(assumption: str) -> str:
    return ADVICE[IMPLIED if assumption.startswith(IMPLIED) else assumption]


def in_words(alarm: AlarmRow) -> str:
    """Return an alarm as a line of the log."""
    which = "" if alarm.key is None else f" [{alarm.key}]"
    return f"alarm{which}, refuted: {alarm.assumption} ({alarm.reason}). {alarm.advice}"

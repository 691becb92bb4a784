"""Whether labels and scores mean what the run takes them for.

Labels of −1 and 1 are half refused, and of the other half, all of one class, an engine learns that all is
positive. Scores in percent are refused above 1, and taken for probabilities below. Each such value alone is
only a reject; together they show that the run is about to learn what is not so, and it must not go on. Every
decision depends on the events up to there and their order alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np

from streamcal.base.values import parse_number, shown
from streamcal.events import Event, LabelEvent, LabelledEvent, Origin, PredictionEvent
from streamcal.events.blocks import Block
from streamcal.events.columns import Columns
from streamcal.events.faces import COMMAND, Face
from streamcal.events.fields import Malformed, OtherLabel

ENOUGH: Final = 10
"""Number of refused values that is no accident."""

UNLABELLED: Final = 100
"""Number of events of an input of labels without any label that is no accident."""

FIRST: Final = 2_000
"""Scores in percent are noticed among so many events, the first ones."""

_PERCENT: Final = (1.01, 100.0)  # less is rounding
_FEW: Final = 2
_SHOWN: Final = 200  # bytes of an event
_SHARE: Final = 20  # at the end, so few percents do if they are one in so many events


class MeaningError(ValueError):
    """Labels, scores or times do not mean what the run takes them for; ``words`` says so, and what to do."""

    def __init__(self, words: Callable[[Face], str]) -> None:
        super().__init__(words(COMMAND))
        self.words = words


def untimed(timed: str, other: str) -> MeaningError:
    """Return the error that one input has times and another none: the order of events would be a guess."""
    return MeaningError(
        lambda face: (
            f"there are times in {timed} and none in the first events of {other}, so nobody knows"
            f" which labels came before which predictions. Name the field of times {face.time}"
        )
    )


class Sighting(msgspec.Struct):
    """A value that was refused: how often, and where first."""

    times: int
    source: str
    line: int

    def shown(self, face: Face) -> str:
        """Return it in words."""
        return f"{self.times} time{'s' * (self.times > 1)}, first in {self.source}, {face.line} {self.line}"


class InputChecks(msgspec.Struct):
    """Classes of the labels and scale of the scores, as seen so far; part of the stored state."""

    settled: bool = False
    """Whether labels of both classes were accepted: `take` has nothing more to look for."""
    classes: list[int] = []
    """Classes of which a label was accepted."""
    labels: dict[str, Sighting] = {}
    """Labels that name neither class, refused before it was settled."""
    other: str | None = None
    """With ``positive``: the label of class 0, the first other one that came."""
    events: int = 0
    """Number of events before the batch that is looked at."""
    percents: int = 0
    """Number of scores among the `FIRST` events that look like percent."""
    lowest: float = 0.0
    """Lowest of the scores among these that were refused, if it is negative."""
    largest: float = 0.0
    """Largest of them, if it is above 100."""
    percent: Sighting | None = None
    third: Sighting | None = None
    """Refused labels among the `FIRST` events that are numbers, though no label is named as positive."""
    lacking: Sighting | None = None
    """Events from an input of labels that have none, before any label was accepted."""
    lacked: str = ""
    """The column of labels that they have not, and the text of the first."""

    def decide(self, events: Sequence[Event | Malformed], positive: object) -> list[Event | Malformed]:
        """Return the events, in their order, with each `OtherLabel` decided: of class 0, or refused.

        Parameters
        ----------
        events
            the next ones.
        positive
            the run's option, for messages.
        """
        return [self._decide(event, positive) if isinstance(event, OtherLabel) else event for event in events]

    def take(
        self, events: Sequence[Event | Malformed], origin_of: Callable[[int], Origin], columns: Columns
    ) -> None:
        """Look at the labels of events, in their order, unless it is settled.

        Parameters
        ----------
        events
            as in `decide`, which comes before.
        origin_of
            where the event at an index came from.
        columns
            of the run, for messages.

        Raises
        ------
        MeaningError
            if labels have another meaning; what follows must not be learned.
        """
        for index, event in _telling(events):
            if isinstance(event, Malformed):
                if event.lacks is not None and not self.classes:
                    self._unlabelled(event.lacks, index, origin_of)
                if event.label is not None:
                    self._refused(event.label, index, origin_of, columns)
            elif event.label not in self.classes:
                self.classes.append(event.label)
                if len(self.classes) == 2:
                    self.settled = True
                    return

    def refused(self, event: Malformed, index: int, origin_of: Callable[[int], Origin]) -> None:
        """Look at the score and the label of an event that was refused, the one at an index after `events`.

        Raises
        ------
        MeaningError
            if scores are in percent, or labels are the numbers of three classes.
        """
        low, high = _PERCENT
        if (
            event.label is not None
            and parse_number(event.label) is not None
            and "positive" not in event.fields
        ):
            self._third(event.label, index, origin_of)
        if event.score is None or self.events + index >= FIRST:
            return
        self.lowest = min(self.lowest, event.score)
        if event.score > high:
            self.largest = max(self.largest, event.score)
        if not low <= event.score <= high:
            return
        self.percents += 1
        if self.percent is None:
            self.percent = _first(origin_of(index))
        self.percent.times += 1
        if self.percents >= ENOUGH:
            raise MeaningError(self._of_scores)

    def end(self, columns: Columns) -> None:
        """Decide with what there is: no more events will come.

        Raises
        ------
        MeaningError
            if there were too few events to be sure earlier.
        """
        if self.lacking and not self.classes and not self.labels:
            raise MeaningError(self._of_no_labels)
        if self.labels and len(self.classes) == 1:
            raise MeaningError(partial(self._of_labels, columns))
        if self.percents >= _FEW and self.events <= min(_SHARE * self.percents, FIRST):
            raise MeaningError(self._of_scores)

    def _decide(self, event: OtherLabel, positive: object) -> LabelEvent | LabelledEvent | Malformed:
        if self.other is None:
            self.other = event.label
        if event.label == self.other:
            return event.event
        fields = {"positive": positive, "other": self.other, "label": event.label}
        return Malformed("bad_label", fields)

    def _refused(self, label: str, index: int, origin_of: Callable[[int], Origin], columns: Columns) -> None:
        seen = self.labels.get(label)
        if seen is None:
            seen = self.labels[label] = _first(origin_of(index))
        seen.times += 1
        if sum(each.times for each in self.labels.values()) >= ENOUGH:
            raise MeaningError(partial(self._of_labels, columns))

    def _third(self, label: str, index: int, origin_of: Callable[[int], Origin]) -> None:
        count = self.events + index + 1
        if count > FIRST:
            return
        if self.third is None:
            self.third = _first(origin_of(index))
        self.third.times += 1
        if self.settled and self.third.times >= max(ENOUGH, count / _SHARE):
            raise MeaningError(partial(self._of_third, label))

    def _unlabelled(self, column: str, index: int, origin_of: Callable[[int], Origin]) -> None:
        if self.lacking is None:
            origin = origin_of(index)
            self.lacking = _first(origin)
            self.lacked = f"{shown(column)}: {origin.raw[:_SHOWN].decode(errors='replace')}"
        self.lacking.times += 1
        if self.lacking.times >= UNLABELLED and not self.labels:
            raise MeaningError(self._of_no_labels)

    def _of_no_labels(self, face: Face) -> str:
        lacking = "" if self.lacking is None else self.lacking.shown(face)
        return (
            f"no label was found where labels are read: no event ({lacking}) has a field {self.lacked}"
            f" … Say {face.label} which field holds the label.{face.nothing_learned}"
        )

    def _of_labels(self, columns: Columns, face: Face) -> str:
        refused = "; ".join(f"{name!r} ({seen.shown(face)})" for name, seen in self.labels.items())
        only = [columns.label_values[each] for each in self.classes]
        accepted = f"labels of class {only[0]!r} only" if only else "no label"
        positive = columns.positive
        known = "A label must equal 0 or 1" if positive is None else f"The positive label is {positive!r}"
        advice = f"{known}; say {face.positive} which one of your two labels counts as 1"
        if columns.classes:
            advice = f"Name all classes {face.classes}"
        return (
            f"labels seem to name other classes: {accepted} could be accepted, while these were refused:"
            f" {refused}. {advice}.{face.nothing_learned}"
        )

    def _of_third(self, label: str, face: Face) -> str:
        seen = "" if self.third is None else self.third.shown(face)
        return (
            f"labels name more classes than 0 and 1: others, such as {label}, were refused ({seen}). Name all"
            f" classes {face.classes}, or say {face.positive} which label counts as 1.{face.nothing_learned}"
        )

    def _of_scores(self, face: Face) -> str:
        percent = "" if self.percent is None else self.percent.shown(face)
        meaning = f"in percent: of the first ones, some lie between 1 and 100 ({percent})"
        advice = "Divide all scores by 100"
        if self.lowest < 0.0:
            meaning = f"log odds: of the first ones, some lie above 1 ({percent}), and one is {self.lowest:g}"
            advice = "Turn each score s into 1 / (1 + exp(-s))"
        elif self.largest:
            meaning = f"points: of the first ones, some lie above 1 ({percent}), and one is {self.largest:g}"
            advice = "Divide all scores by the largest that the model can give"
        return (
            f"scores seem to be {meaning}, and those from 0 to 1 would be taken for probabilities. {advice}."
            f"{face.nothing_learned}"
        )


def _telling(
    events: Sequence[Event | Malformed],
) -> Iterator[tuple[int, LabelEvent | LabelledEvent | Malformed]]:
    """Yield the events that may tell something, with their indices: of a block, only the first of a label."""
    indices: Iterable[int] = range(len(events))
    if isinstance(events, Block):
        firsts = [np.flatnonzero(events.labels == label)[:1].tolist() for label in (0, 1)]
        indices = sorted({*firsts[0], *firsts[1], *events.others})
    for index in indices:
        event = events[index]
        if not isinstance(event, PredictionEvent):
            yield index, event


def _first(origin: Origin) -> Sighting:
    return Sighting(0, origin.source, origin.line)

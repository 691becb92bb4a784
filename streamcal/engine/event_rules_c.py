"""EventRules: the rules of an engine for one prediction and one label.

Compiled where there is a C compiler; `event_rules_c.pxd` has the types.
"""

from __future__ import annotations

from typing import Any

from streamcal.certificates.record import Certificate
from streamcal.engine import served_map_c
from streamcal.engine.emissions import Emission, Recalibrated
from streamcal.events import Domain, LabelledEvent, PredictionEvent
from streamcal.join.outcomes import Joined
from streamcal.sketch import buffers_c
from streamcal.sketch.buffers_c import AT_ONCE
from streamcal.sketch.weighing import units_of

__all__ = ["EventRules"]

_NEVER = float("-inf")
_AT_ONCE = AT_ONCE


class EventRules:
    """The rules of an engine for one event; `streamcal.engine.engine.Engine` adds what is due at times.

    Parameters
    ----------
    source, target
        the labels of each domain.
    unlabelled
        the target's scores.
    served
        the map that is served.
    begins_by_scores
        whether scores alone may begin a version.
    delayed
        whether event times may begin a version.
    """

    def __init__(
        self,
        source: buffers_c.LabelBuffer,
        target: buffers_c.LabelBuffer,
        unlabelled: buffers_c.ScoreBuffer,
        served: served_map_c.ServedMap,
        begins_by_scores: bool,
        delayed: bool,
    ) -> None:
        self._source: Any = source
        self._target: Any = target
        self._unlabelled: Any = unlabelled
        self.served = served
        """Served map."""
        self._begins_by_scores, self._delayed = begins_by_scores, delayed
        self._latest = _NEVER  # the latest event time of a label
        self._source_stop = self._target_stop = 0  # label counts at which something is due

    # A prediction

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, tuple[Emission, ...]]:
        """Answer a prediction, and note its score if it is of the target.

        Returns
        -------
        The answer; the number of target scores observed before; and the map version that the score has begun,
        if it has: scores alone can move the prior, and time can close a pane of delayed feedback. That map
        comes without a certificate, which uses labels only.
        """
        score, prediction_index = event.score, self._unlabelled.n
        probability = self.served.answer(score)
        answer = Recalibrated(
            event.id,
            score,
            probability,
            self.served.version,
            self.served.weights_now(),
            event.key,
            event.time,
        )
        if event.domain == "target":
            begins = self.observe_one(score)
            if self._delayed and event.time is not None and self._close_panes(score, event.time):
                begins = True
            if begins:
                return answer, prediction_index, (self._published(None),)
        return answer, prediction_index, ()

    def observe_one(self, score: float) -> bool:
        """Note a checked target score; return whether that began a version."""
        if self._unlabelled.append(score):
            return self._settle_scores()
        return False

    def may_begin(self, is_target: bool) -> bool:
        """Whether the next score may begin a version."""
        return bool(is_target and self._begins_by_scores and self._unlabelled.room <= 1)

    # A label

    def is_due(self, is_target: bool) -> bool:
        """Whether something is due with the next label of a domain."""
        labels = self._target if is_target else self._source
        stop = self._target_stop if is_target else self._source_stop
        return bool(labels.windowed or labels.n + 1 >= stop)

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Learn from a prediction that met its label.

        Returns
        -------
        The map version that the label has begun, if it has, and the alarms that it raised.
        """
        is_target = joined.domain == "target"
        labels = self._target if is_target else self._source
        if joined.weight != 1.0 and not labels.closed:
            labels.weigh(joined.label, units_of(joined.weight))
        time = joined.labelled_at if joined.matured_at is None else joined.matured_at
        latest = _NEVER if time is None else time
        if self.is_due(is_target):
            return self._learn_due(joined, latest)
        self.learn_label(joined.score, joined.label, is_target, latest, joined.prediction_index)
        return ()

    def learn_label(
        self, score: float, label: int, is_target: bool, time: float, prediction_index: int
    ) -> None:
        """Learn a checked label of a prediction; ``time`` is its event time in seconds, or -inf."""
        if time > self._latest:
            self._latest = time
        elif time == _NEVER:
            time = 0.0 if self._latest == _NEVER else self._latest  # for a window, as late as the latest
        self._learn(score, label, is_target, time, prediction_index)

    def learn_usual(
        self,
        score: object,
        label: object,
        domain: object,
        time: object,
        prediction_index: object,
        weight: object,
        positive: object,
    ) -> bool:
        """Learn one score with its label if they are as usual, which needs no more than a glance.

        The parameters are those of `Recalibrator.learn_one`, not checked yet. Return whether that is done.
        """
        if time is not None or weight is not None or positive is not None:
            return False
        if (
            type(score) is not float
            or type(label) is not int
            or (prediction_index is not None and type(prediction_index) is not int)
        ):
            return False
        is_target = domain == "target"
        if not (0.0 <= score <= 1.0 and (label == 0 or label == 1) and (is_target or domain == "source")):
            return False
        self._learn(score, label, is_target, None, _AT_ONCE if prediction_index is None else prediction_index)
        return True

    def learn_one(
        self, score: float, label: int, domain: str, time: float | None, prediction_index: int | None
    ) -> None:
        """Learn one checked score with its label; see `Recalibrator.learn_one`."""
        self._learn(
            score, label, domain == "target", time, _AT_ONCE if prediction_index is None else prediction_index
        )

    def _learn(
        self, score: float, label: int, is_target: bool, time: float | None, prediction_index: int
    ) -> None:
        labels = self._target if is_target else self._source
        if labels.closed:
            return
        if labels.windowed:
            self._turn("target" if is_target else "source", labels, time)
        n = labels.append(score, label, prediction_index)
        self.served.forget_weights()
        if n >= (self._target_stop if is_target else self._source_stop):
            self._catch_up("target" if is_target else "source")

    # What an engine does when it is due

    def _settle_scores(self) -> bool:
        """Make room for scores; return whether a version begins by that."""
        raise NotImplementedError

    def _close_panes(self, score: float, time: float) -> bool:
        """Count a prediction for delayed feedback; return whether a version begins by that."""
        raise NotImplementedError

    def _published(self, certificate: Certificate | None) -> Emission:
        """Return the emission for the served map."""
        raise NotImplementedError

    def _learn_due(self, joined: Joined, time: float) -> tuple[Emission, ...]:
        """Learn a label with which something is due; return the emissions."""
        raise NotImplementedError

    def _turn(self, domain: Domain, labels: buffers_c.LabelBuffer, time: float | None) -> bool:
        """Make ready for a label under a window; return whether the window slides by event time with it."""
        raise NotImplementedError

    def _catch_up(self, domain: Domain, *, forms: bool = True) -> None:
        """Do what is due at this label count."""
        raise NotImplementedError

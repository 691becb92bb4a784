"""EventRules: the rules of an engine for one prediction and one label, with the map that it serves now.

The map is g∘h: h changes with a map version, the weights of g with every label.

Compiled where there is a C compiler; `event_rules_c.pxd` has the types.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

import msgspec
import numpy as np

from streamcal.base.errors import DamagedStateError
from streamcal.base.values import Counts, Floats, Labels
from streamcal.certificates.claim import Claim
from streamcal.certificates.record import Certificate
from streamcal.delayed.label_release_c import LabelRelease
from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.domain_labels import DomainLabels
from streamcal.engine.emissions import Emission, MapPublished, Recalibrated
from streamcal.engine.map_versions import MapVersions
from streamcal.engine.schedule import NEVER
from streamcal.engine.state import EngineState
from streamcal.engine.unlabelled_scores import DOUBLING, UnlabelledScores
from streamcal.events import Domain, Kept, LabelledEvent, PredictionEvent
from streamcal.join.entries import Memo
from streamcal.join.outcomes import Joined
from streamcal.maps import fits_c
from streamcal.maps.fits_c import LinearFunction, StepFunction
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import NO_SHIFT
from streamcal.mixture.forecasts_c import MixedSteps
from streamcal.mixture.history import BLOCK
from streamcal.mixture.likelihood import matched_odds
from streamcal.mixture.mixture import EARLIER, first_map
from streamcal.mixture.score_tracker import ScoreTracker
from streamcal.mixture.table import Mixed
from streamcal.sketch import checks
from streamcal.sketch.counts_c import AT_ONCE
from streamcal.sketch.decoding import require

INDEX_BYTES: Final = 8
"""Bytes of the number of target scores with which a memo begins."""

_NEW_LABELS: Final = 16  # or a part of one in so many, after which limits for rows are formed anew
_NEW_PART: Final = 20
_NEVER, _NO_TIME = float("-inf"), float("nan")
_AT_ONCE = AT_ONCE
_INDEX_BYTES = INDEX_BYTES


class ClassPriors:
    """Estimates of P[Y=1] and Q[Y=1] as of the latest label.

    Parameters
    ----------
    tracker
        tracker of the target's prior by its scores; None: the prior follows from its labels.
    source, target
        the labels of each domain.
    config
        options of the engine: what is known of the shift of the classes.
    matched
        κ under which the forecasts have the known prior as their mean; None: no score was read.
    """

    def __init__(
        self,
        tracker: ScoreTracker | None,
        source: DomainLabels,
        target: DomainLabels,
        config: RecalibratorConfig,
        matched: float | None = None,
    ) -> None:
        self._source, self._target = source, target
        self.tracker, self.matched = tracker, matched
        self._prior = config.prior if isinstance(config.prior, float) else None
        self._rate = config.sampling_rate

    @property
    def takes_scores(self) -> bool:
        """Whether scores are read as they come: for the target's prior, or to match a known one."""
        return self.tracker is not None or self.matches

    @property
    def matches(self) -> bool:
        """Whether the target's prior is known."""
        return self._prior is not None

    def known_odds(self) -> float | None:
        """Return κ (eq. 13), positive, if it is known before the first label; else None."""
        if self._prior is None or self._rate is not None:
            return self._rate
        if not self._source.n:
            return self.matched
        zeros, ones = fits_c.shift_weights(self.of("source"), self._prior)
        return ones / zeros

    def of(self, domain: Domain) -> float | None:
        """Return the estimate for a domain, in (0, 1); None if nothing is known."""
        if domain == "target" and self.tracker is not None:
            return self.tracker.prior
        labels = self._target if domain == "target" else self._source
        positives, n = float(labels.positives), float(labels.n)
        if labels.windowed or labels.weighted:
            positives, n = labels.remembered
        return fits_c.class_prior(positives, n)

    @property
    def from_scores(self) -> float | None:
        """The target's prior, if scores are evidence for it; else None."""
        return None if self.tracker is None else self.tracker.prior

    def weights(self) -> tuple[float, float]:
        """Return (w₀, w₁) of the shift correction (eq. 13)."""
        odds = self.known_odds()
        if odds is not None:
            return 1.0, odds
        return fits_c.shift_weights(self.of("source"), self.of("target"))

    def read_scores(self, scores: Floats, unlabelled: UnlabelledScores) -> None:
        """Read scores where they are evidence: the latest, float64[k], or all of them."""
        if self.tracker is not None:
            self.tracker.take_scores(scores)
        elif self._prior is not None and not self._source.n:
            self.matched = matched_odds(unlabelled.sketch, self._prior)

    def set_source(self, formed: RecalibrationMap) -> None:
        """Replace the source map, through which scores are evidence of the target's prior."""
        if self.tracker is not None:
            prior = self.of("source")
            self.tracker.set_source(formed.edges, formed.values, 0.5 if prior is None else prior)


class ServedMap:
    """The function from scores to probabilities that is served.

    Parameters
    ----------
    priors
        class priors, which give the weights of the shift correction g; None: h is served without correction.
    first
        map to serve before the first version, of version 0.
    """

    def __init__(self, priors: ClassPriors | None, first: RecalibrationMap) -> None:
        self._priors = priors
        self.shifts = priors is not None
        """Whether g is applied on top of h, so that every label moves the map."""
        self._weights: tuple[float, float] | None = NO_SHIFT
        self._mixed: Mixed | None = None  # a map that nobody has asked for yet
        self._mixture: MixedSteps | None = None  # what it says of single scores
        self._steps: StepFunction | None = None
        self._line: LinearFunction | None = None
        self.version = 0
        """Number of the map version."""
        self.serve(first, 0)

    @property
    def base(self) -> RecalibrationMap:
        """The map h; its own version and weights are ignored."""
        mixed = self._mixed
        if mixed is None:
            return self._base
        base: RecalibrationMap = mixed.map
        function = base.function
        if self._mixed is mixed:  # else a thread that learns has begun another version meanwhile
            self._use(base, function)
        return base

    @property
    def map(self) -> RecalibrationMap:
        """Map for users: h with its version and the weights of g."""
        return self.base.model_copy(update={"version": self.version, "weights": self.weights_now()})

    def snapshot(self) -> Callable[[], RecalibrationMap]:
        """Return a function that returns `map` as it is now, formed when it is first asked for."""
        base = self._base if self._mixed is None else self._mixed
        return cache(partial(_formed, base, {"version": self.version, "weights": self.weights_now()}))

    def serve(self, base: RecalibrationMap | Mixed | None, version: int) -> None:
        """Serve another h from now on; None: the same. A mixed one is evaluated when it is asked for."""
        self.version = version
        self.forget_weights()
        if isinstance(base, Mixed):
            self._mixed, self._mixture = base, base.steps()
        elif base is not None:
            self._use(base, base.function)

    def _use(self, base: RecalibrationMap, function: StepFunction | LinearFunction | None) -> None:
        self._base, self._mixed, self._mixture = base, None, None
        self._steps = function if isinstance(function, StepFunction) else None
        self._line = function if isinstance(function, LinearFunction) else None

    def weights_now(self) -> tuple[float, float]:
        """Return (w₀, w₁) of g, as of the latest label."""
        weights = self._weights  # which a thread that learns may forget meanwhile
        if weights is None and self._priors is not None:
            weights = self._weights = self._priors.weights()
        return weights  # type: ignore[return-value]

    def forget_weights(self) -> None:
        """Compute the weights anew when they are next needed: the priors have moved."""
        if self.shifts:
            self._weights = None

    def predict_one(self, score: object) -> float:
        """Return the probability of one score; see `Recalibrator.predict_one`."""
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = checks.check_score(score)
        return self.forecast(score)

    def forecast(self, score: float) -> float:
        """Return the probability of one checked score."""
        probability = score
        mixture, steps, line = self._mixture, self._steps, self._line  # kept, if a thread serves another map
        if mixture is not None:
            probability = mixture.one(score)
        elif steps is not None:
            probability = steps.one(score)
        elif line is not None:
            probability = line.one(score)
        if not self.shifts:
            return probability
        return fits_c.shift_correction_one(probability, self.weights_now())

    def predict_many(self, scores: Floats) -> Floats:
        """Return the probabilities of checked scores, float64[n]."""
        return self.base.apply_checked(scores, self.weights_now())


class EventRules:
    """The rules of an engine for one event; `streamcal.engine.engine.Engine` adds those for many, and state.

    Parameters
    ----------
    config
        options of the engine.
    key
        key of its events, which its emissions name; None if events have none.
    state
        the state to start from; None: nothing is known. ValueError if it is none of these options.
    """

    def __init__(
        self,
        config: RecalibratorConfig,
        key: str | None = None,
        state: EngineState | None = None,
    ) -> None:
        self.config = config
        auto, window = config.mode == "auto", config.window
        by_scores, new, state = config.prior == "scores", state is None, state or EngineState()
        self._source: Any = DomainLabels(window, state.source, newest=EARLIER if auto else 0)
        self._target: Any = DomainLabels(window, state.target, keeps_index=True)
        tracker = ScoreTracker() if new and by_scores else state.priors
        require((tracker is not None) == by_scores, "the prior by scores does not fit the options")
        self._priors = priors = ClassPriors(tracker, self._source, self._target, config, state.matched)
        block = BLOCK if by_scores else DOUBLING if priors.matches else 0
        self._unlabelled: Any = UnlabelledScores(block, state.unlabelled, state.unread)
        shifts = config.mode in ("composite", "label_shift")
        first = first_map(config.prior, config.sampling_rate) if auto else RecalibrationMap(version=0)
        self.served = ServedMap(priors if shifts else None, first)
        """Served map."""
        self._versions = MapVersions(
            config, self._source, self._target, self._unlabelled, priors, self.served, state.versions
        )
        self._delayed = auto and config.label_delay_limit is not None  # event times may begin a version
        self._key = key
        self.carries = False
        """Whether the join is to keep values with each prediction."""
        self._latest = _NEVER if state.time is None else state.time  # the latest event time of a label
        # Under a limit, labels are learned in the order of their predictions.
        self.release: Any = None
        if auto and config.label_delay_limit is None:
            self.release = self._versions.release = LabelRelease(weighs=config.why_unweighted is None)
        require(new or (state.release is None) == (self.release is None), "held labels without such options")
        if state.release is not None:
            self.release.restore(state.release)
            require(self.release.n == self._unlabelled.n, "cohorts of other predictions")
        self._complete: Any = self._versions.complete
        self.limits = state.limits
        """Number of labels at which limits of the rate were formed for rows, and these; None: none were."""
        self.limits_stop = NEVER
        """Number of labels at which they are to be formed for the next prediction."""
        self.interval = 0.0
        """Probability with which they hold."""
        self._in_turn = False
        self._set_stops()

    # A prediction

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, Memo | None, tuple[Emission, ...]]:
        """Answer a prediction, and note its score if it is of the target.

        Returns
        -------
        The answer; the number of target scores observed before; the memo that the join is to keep with the
        prediction, None if there is none; and the map version that the score has begun, if it has: scores
        alone can move the prior, and time can close a pane of delayed feedback. That map comes without a
        certificate, which uses labels only.
        """
        if self._source.n + self._target.n >= self.limits_stop:
            self.form_limits()
        score, prediction_index, memo = event.score, self._unlabelled.n, None
        probability = self.served.forecast(score)
        if self.carries:
            probability, memo = self.carry(event.kept, score, probability)
        answer = Recalibrated(
            event.id,
            score,
            probability,
            self.served.version,
            self.served.weights_now(),
            event.key,
            event.time,
        )
        if event.domain != "target":
            return answer, prediction_index, memo, ()
        begun = self.observe_one(score, _NO_TIME if event.time is None else event.time)
        return answer, prediction_index, memo, begun

    def carry(self, kept: Kept, score: float, probability: float) -> tuple[float, Memo]:
        """Return the probability to answer with, and what the join is to keep, where the engine `carries`.

        Parameters
        ----------
        kept, score
            of the event.
        probability
            that of the map.
        """
        raise NotImplementedError

    def keep_limits(self, probability: float) -> None:
        """Form limits of the rate for rows, from now on, each time labels grow by a twentieth, and by 16."""
        self.interval, self.limits_stop = probability, 0
        if self.limits is not None:
            self.limits_stop = self.limits[0] + max(_NEW_LABELS, self.limits[0] // _NEW_PART)

    def form_limits(self) -> None:
        """Form limits of the rate of label 1 for rows."""
        self.limits = int(self._source.n + self._target.n), self._versions.rate_limits(self.interval)
        self.keep_limits(self.interval)

    def learn_memo(self, score: float, label: int, memo: Memo) -> None:  # noqa: ARG002
        """Learn what was kept with a prediction of the target, after its label is learned."""
        raise DamagedStateError("a prediction that waits has values that its engine does not keep")

    def observe_one(self, score: float, time: float = _NO_TIME) -> tuple[Emission, ...]:
        """Note a checked target score and its event time in seconds, or NaN.

        Returns
        -------
        The map version that this has begun, if it has, and the alarms that it raised, as in `answer`.
        """
        version, release = self.served.version, self.release
        if release is not None and release.unsettled and not release.drawn:  # until the first are fair
            release.expect(self.served.forecast(score))
        begins = self._unlabelled.append(score) and self._drain_scores()
        if self._delayed and time == time and self._versions.predicted(score, time):
            self._set_stops()
            begins = True
        if release is not None and self._count(score, time):
            alarms = len(self._versions.alarms)
            self._learn_released()
            return self._begun(version, alarms)
        return (self._published(None),) if begins else ()

    def _count(self, score: float, time: float) -> bool:
        """Let a prediction make labels of others come of age; return whether some are to be learned."""
        release = self.release
        if release.unsettled or release.on:
            release.note(score)
        if self._complete is not None:
            self._complete.predict(score)
        if not release.predict(time):
            return False
        some: bool = release.end()
        if release.on and self._complete is None:
            self._begin_cohorts()
        return some

    def _begin_cohorts(self) -> None:
        """Let certificates rest on the predictions from now on."""
        self._versions.begin_cohorts()
        self._complete = self._versions.complete
        self._set_stops()

    def reform_by(self, growth: float) -> None:
        """Form maps, other than the mixture's, each time labels have grown by this factor, from now on."""
        self._versions.reform_by(growth)
        self._set_stops()

    def wait_for_turns(self, waits: bool) -> None:
        """Leave what is due by labels of the target to `take_turn`, from now on, or no longer."""
        self._in_turn = waits
        self._set_stops()

    def take_turn(self) -> None:
        """Do what is due by labels of the target."""
        if self._versions.labels_until_due("target") <= 0:
            self._catch_up("target")

    # A label

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Learn from a prediction that met its label; see `learn_label`."""
        time = joined.labelled_at if joined.matured_at is None else joined.matured_at
        return self.learn_label(
            joined.score,
            joined.label,
            joined.domain == "target",
            _NEVER if time is None else time,
            joined.prediction_index,
            joined.weight,
            joined.memo,
        )

    def learn_label(
        self,
        score: float,
        label: int,
        is_target: bool,
        time: float,
        prediction_index: int,
        weight: float = 1.0,
        memo: Memo | None = None,
    ) -> tuple[Emission, ...]:
        """Learn a checked label of a prediction, its event time in seconds or -inf, its weight.

        ``memo`` is what the join has kept with a prediction of the target.

        Returns
        -------
        The map version that the label has begun, if it has, and the alarms that it raised.
        """
        due, version, alarms = self._is_due(is_target), self.served.version, 0
        if due:
            alarms = len(self._versions.alarms)
        came = time
        if time > self._latest:
            self._latest = time
        elif time == _NEVER:
            time = 0.0 if self._latest == _NEVER else self._latest  # for a window, as late as the latest
        held = is_target and self.release is not None
        if held and self._complete is not None:
            self._complete.label(score, label, prediction_index)
        if not held or not self._waits(score, label, prediction_index, weight, came, time, memo):
            self._learn(score, label, is_target, time, prediction_index, weight)
            if memo is not None and is_target:
                self.learn_memo(score, label, memo)
        return self._begun(version, alarms) if due else ()

    def _is_due(self, is_target: bool) -> bool:
        """Whether something is due with the next label of a domain."""
        labels = self._target if is_target else self._source
        stop = self._target_stop if is_target else self._source_stop
        if is_target and self.release is not None and self.release.unsettled:
            return True
        return bool(labels.windowed or labels.n + 1 >= stop)

    def _waits(
        self,
        score: float,
        label: int,
        prediction_index: int,
        weight: float,
        came: float,
        time: float,
        memo: Memo | None,
    ) -> bool:
        """Let a label of the target wait, if it is to; return whether it does, or has been learned."""
        release = self.release
        if self._target.windowed:
            self._target.next_pane(None if time != time else time)  # which needs its time
        expected = self.served.forecast(score) if release.unsettled else 0.0
        if release.take(score, label, prediction_index, weight, came, time, expected, memo):
            return False
        if release.ready:
            self._learn_released()
        return True

    def _learn_released(self) -> None:
        """Learn the labels that are released."""
        given = self.release.released_labels()
        # In a window, both classes of a cohort count from the moment at which they are learned.
        times = given.times
        if self._target.windowed and self._latest != _NEVER:
            times = np.full(len(times), self._latest)
        self._learn_many(given.scores, given.labels, "target", times, given.prediction_index, given.weights)
        for score, label, memo in zip(given.scores.tolist(), given.labels.tolist(), given.memos, strict=True):
            if memo is not None:
                self.learn_memo(score, label, memo)

    def _pass_many(
        self, scores: Floats, labels: Labels, times: Floats | None, prediction_index: Counts, weights: Floats
    ) -> Any:
        """Return which labels of the target are to be learned now, bool[n]; let the others wait."""
        release, size = self.release, len(scores)
        if self._complete is not None:
            self._complete.exact = False
        passed = np.ones(size, np.bool_)
        passes: Any = passed.view(np.uint8)
        time = _NO_TIME
        for i in range(size):
            if prediction_index[i] < 0 and not release.unsettled:
                break  # they came at once, and so do those behind them
            if times is not None:
                time = times[i]
            if self._waits(scores[i], labels[i], prediction_index[i], weights[i], time, time, None):
                passes[i] = False
        return passed

    def _learn_many(
        self,
        scores: Floats,
        labels: Labels,
        domain: Domain,
        times: Floats | None,
        prediction_index: Counts | None,
        weights: Floats,
    ) -> None:
        """Learn labels that do not wait."""
        known = self._target if domain == "target" else self._source
        size, start = len(scores), 0
        last = self._versions.last_version(domain, size)
        for cut in known.pane_cuts(size, times):
            if known.windowed and self._turn(domain, known, None if times is None else float(times[start])):
                last = min(last, known.n + 1)
            while start < cut:
                until = known.remaining if self._in_turn else self._versions.labels_until_due(domain)
                end = min(cut, start + max(1, until))
                part, start = slice(start, end), end
                number = None if prediction_index is None else prediction_index[part]
                known.extend(scores[part], labels[part], number, weights[part])
                if known.n >= (self._target_stop if domain == "target" else self._source_stop):
                    self._catch_up(domain, forms=known.n >= last)
        self.served.forget_weights()

    def learn_usual(
        self,
        score: object,
        label: object,
        domain: object,
        time: object,
        weight: object,
        memo: object,
        positive: object,
    ) -> bool:
        """Learn one score with its label if they are as usual, which needs no more than a glance.

        The parameters are those of `Recalibrator.learn_one`, not checked yet. Return whether that is done.
        """
        if self.carries or time is not None or weight is not None or positive is not None:
            return False
        if type(score) is not float or type(label) is not int:
            return False
        is_target = domain == "target"
        if not (0.0 <= score <= 1.0 and (label == 0 or label == 1) and (is_target or domain == "source")):
            return False
        index = _AT_ONCE
        if memo is not None:
            if type(memo) is not bytes or len(memo) != _INDEX_BYTES:
                return False
            index = int.from_bytes(memo, "little", signed=True)
            if not 0 <= index <= self._unlabelled.n:
                return False
        self.learn_one(score, label, "target" if is_target else "source", None, index, 1.0)
        return True

    def learn_one(
        self,
        score: float,
        label: int,
        domain: str,
        time: float | None,
        prediction_index: int | None,
        weight: float,
        memo: Memo | None = None,
    ) -> None:
        """Learn one checked score with its label, or let it wait."""
        index = _AT_ONCE if prediction_index is None else prediction_index
        is_target = domain == "target"
        if is_target and self.release is not None:
            if self._complete is not None:
                self._complete.exact = False
            came = _NO_TIME if time is None else time
            if self._waits(score, label, index, weight, came, came, memo):
                return
        self._learn(score, label, is_target, time, index, weight)
        if memo is not None:
            self.learn_memo(score, label, memo)

    def _learn(
        self, score: float, label: int, is_target: bool, time: float | None, index: int, weight: float
    ) -> None:
        labels = self._target if is_target else self._source
        if labels.windowed:
            self._turn("target" if is_target else "source", labels, time)
        n = labels.append(score, label, index, weight)
        self.served.forget_weights()
        if n >= (self._target_stop if is_target else self._source_stop):
            self._catch_up("target" if is_target else "source")

    # What is due at some label counts

    @property
    def _time(self) -> float | None:
        """Latest event time of a label, in seconds; None before there is one."""
        return None if self._latest == _NEVER else self._latest

    def certify(self) -> Certificate | None:
        """Return the certificate of the served map, to be published with it; it may raise an alarm."""
        claim = self._versions.claim(self._time)
        if claim is None:
            return None
        self.publish(claim)
        return claim.certificate

    def as_published(self) -> MapPublished:
        """Return the served map as it is published now, with what may be claimed of it."""
        return self._published(self._versions.claim(self._time))

    def publish(self, claim: Claim) -> None:
        """Work out the certificate of a claim that a `MapPublished` holds; it may raise an alarm."""
        self._versions.publish(claim)

    def _set_stops(self) -> None:
        """Compute the label counts at which something is due next."""
        source, target, versions = self._source, self._target, self._versions
        self._source_stop = source.n + min(source.remaining, versions.labels_until_due("source"))
        due = NEVER if self._in_turn else versions.labels_until_due("target")
        self._target_stop = target.n + min(target.remaining, due)

    def _catch_up(self, domain: Domain, *, forms: bool = True) -> None:
        """Do what is due at this label count; without ``forms``, a version that begins is only counted."""
        labels = self._target if domain == "target" else self._source
        if labels.remaining <= 0:
            self._versions.flush(domain)
        self._versions.catch_up(domain, forms=forms)
        self._set_stops()

    def _turn(self, domain: Domain, labels: DomainLabels, time: float | None) -> bool:
        """Make ready for a label under a window; return whether the window slides by event time with it."""
        pane = labels.next_pane(time)
        if pane is None:
            return False
        self._versions.flush(domain)
        slides = labels.open_pane(pane)
        if slides:
            self._versions.schedule_now(domain)
            self._set_stops()
        return slides

    def _begun(self, version: int, alarms: int) -> tuple[Emission, ...]:
        """Return what was begun by labels since this version and this number of alarms."""
        versions = self._versions
        published: tuple[Emission, ...] = ()
        if self.served.version != version:
            due = versions.is_certified or len(versions.alarms) > alarms  # it says what was refuted
            published = (self._published(versions.claim(self._time) if due else None),)
        raised = versions.alarms[alarms:]
        if self._key is not None:
            raised = tuple([msgspec.structs.replace(alarm, key=self._key) for alarm in raised])
        return published + raised

    def _drain_scores(self) -> bool:
        """Let readers take the scores that wait; return whether a version begins by that."""
        block = self._unlabelled.drain()
        if block is None:
            return False
        self._priors.read_scores(block, self._unlabelled)
        begins = self._versions.scores_read()
        self._set_stops()
        return begins

    def _published(self, claim: Claim | None) -> MapPublished:
        served = self.served
        return MapPublished(
            served.version,
            served.snapshot(),
            served.weights_now(),
            claim,
            self._key,
            self._versions.mixed,
        )


def _formed(base: RecalibrationMap | Mixed, update: dict[str, Any]) -> RecalibrationMap:
    """Return a map with its version and weights."""
    return (base.map if isinstance(base, Mixed) else base).model_copy(update=update)

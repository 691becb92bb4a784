"""Events through join and engine: one event, or a block of them, and their results in order.

The join says what an event means: a new prediction, a label that met its prediction, a duplicate. The engine
answers and learns. Neither calls the other; `step` asks both, one after the other. A prediction that matures
is learned before the event whose time matures it (`emit`).

`BlockSteps` is a loop over the same rules for the common case: a new prediction, or a label that meets its
prediction. The loop ends before any other event, which `step` takes; where something expires; and behind an
event that begins something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.times import LATEST, read_time
from streamcal.base.values import Counts, Floats, check_domain, check_id, check_key, shown
from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.emissions import Emission
from streamcal.engine.event_rules_c import EventRules
from streamcal.events import DOMAINS, Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.blocks import Block
from streamcal.events.codes import Refusal
from streamcal.join.entries import Memo
from streamcal.join.id_table_c import LABELLED, PAIR, REAL
from streamcal.join.outcomes import Contradicted, EarlyPositive, Joined, OriginOf, Rejected
from streamcal.join.rules_c import AHEAD, DONE, JoinRules
from streamcal.sketch.checks import check_label, check_score
from streamcal.sketch.weighing import HEAVIEST, check_weight

if TYPE_CHECKING:
    from streamcal.engine.engine import Engine
    from streamcal.join.join import Join
    from streamcal.maps.rate_limits import RateLimits
    from streamcal.sampling import Sampler

AT_MOST: Final = 8192
"""Number of events taken at a time: the next ones use the same memory again."""

END, EVENT, EXPIRES = 0, 1, 2
"""Reasons why the loop ends: at the end, before an event for `step`, before an event by whose time something
expires."""

# As C has them.
_END, _EVENT, _EXPIRES = END, EVENT, EXPIRES
_DONE, _LABELLED, _REAL, _PAIR, _AHEAD = DONE, LABELLED, REAL, PAIR, AHEAD
_UNKNOWN: Final = -1
_NO_TIME: Final = float("-inf")
_UNTIMED: Final = float("nan")
_LATEST, _HEAVIEST = LATEST, HEAVIEST
_PLAIN: Final = 128  # characters; a longer id may have too many bytes

Outcome: TypeAlias = Emission | Joined
"""Results of one event; a `Joined` stands before the emissions of its label."""
Outcomes: TypeAlias = tuple[Outcome, ...]
EngineOf: TypeAlias = Callable[[str | None], Any]
"""Function that returns the engine for an event's ``key``, or what stands for it, with its methods."""


def step(event: Event, join: Join, engine_of: EngineOf, origin_of: OriginOf | None = None) -> Outcomes:
    """Take one event, in the order of arrival.

    Parameters
    ----------
    event
        a prediction, a label, or both in one.
    join
        the join that matches labels with predictions.
    engine_of
        function that returns an engine.
    origin_of
        function that returns the event's origin, if the event does not hold it; called only when it is
        rejected or waits.

    Returns
    -------
    The predictions that mature by this event's time, each with its emissions, and the rejects of earlier
    events that expire by it; then the answer to a prediction, the label that it met and its emissions; or the
    reject of this event.
    """
    expired, time = tuple[Outcome, ...](), event.time
    if join.move(_UNTIMED if time is None else time):
        expired = emit(join.expire(), engine_of)
    if type(event) is not LabelEvent and isinstance(event, PredictionEvent):
        outcomes = _prediction(event, join, engine_of(event.key), origin_of)
    elif isinstance(event, LabelEvent):
        outcomes = _label(event, join, engine_of, origin_of)
    else:
        outcomes = _labelled(event, join, engine_of, origin_of)
    return (*expired, *outcomes) if expired else outcomes


def emitted(outcomes: Outcomes) -> tuple[Emission, ...]:
    """Return outcomes without the joined labels."""
    if len(outcomes) == 1 and type(outcomes[0]) is Joined:  # as usual with a label
        return ()
    return tuple([outcome for outcome in outcomes if type(outcome) is not Joined])  # type: ignore[misc]


def emit(left: Iterable[Outcome], engine_of: EngineOf) -> Outcomes:
    """Let engines learn matured predictions; return these with their emissions."""
    outcomes: list[Outcome] = []
    for each in left:
        outcomes += _learned(each, engine_of(each.key)) if isinstance(each, Joined) else (each,)
    return tuple(outcomes)


def _prediction(
    event: PredictionEvent | LabelledEvent, join: Join, engine: Engine, origin_of: OriginOf | None
) -> Outcomes:
    refused = join.admit(event, origin_of)
    if refused is not None:
        return (refused,)
    answer, prediction_index, memo, begun = engine.answer(event)
    kept = (answer.map_version, *answer.weights) if join.keeps_answers else None
    early = join.take_early(str(event.id)) if join.matures else None
    joined = join.hold(event, answer.probability, prediction_index, kept, memo)
    if joined is not None:
        return (answer, *begun, *_learned(joined, engine))
    if early is None:
        return (answer, *begun)
    return (
        answer,
        *begun,
        *_met(join.finalize(early), engine),
        *_met(join.match(early, origin_of, is_new=False), engine),
    )


def _learned(joined: Joined, engine: Engine) -> Outcomes:
    """Let an engine learn a prediction with its label; return both, with the emissions."""
    return (joined, *engine.learn(joined))


def _met(met: Joined | EarlyPositive | Contradicted | Rejected | None, engine: Engine) -> Outcomes:
    """Return the outcome of a label, with the emissions of the engine of its prediction."""
    if isinstance(met, Contradicted):
        engine.contradict(met)
        return (met.outcome,)
    if isinstance(met, Joined):
        return _learned(met, engine)
    if isinstance(met, EarlyPositive):
        return engine.observe_early(met)
    return () if met is None else (met,)


def _label(event: LabelEvent, join: Join, engine_of: EngineOf, origin_of: OriginOf | None) -> Outcomes:
    ripe = join.finalize(event) if join.matures else None
    before = () if ripe is None else _met(ripe, engine_of(ripe.key))
    found = join.match(event, origin_of)
    if isinstance(found, Joined):
        return _learned(found, engine_of(found.key))  # nothing was ripe, or it would not wait
    if found is None or isinstance(found, Rejected):
        return before if found is None else (*before, found)
    return (*before, *_met(found, engine_of(found.key)))


def _labelled(event: LabelledEvent, join: Join, engine_of: EngineOf, origin_of: OriginOf | None) -> Outcomes:
    """Take prediction and label in turn; of a prediction that came before, only the label."""
    engine = engine_of(event.key)
    if event.id is None:
        answer, prediction_index, memo, begun = engine.answer(event)
        joined = join.join(event, answer.probability, prediction_index, memo)
        return (answer, *begun, *_learned(joined, engine))
    answered = () if join.is_prediction(event.id) else _prediction(event, join, engine, origin_of)
    label = LabelEvent(event.id, event.label, event.time, event.origin, event.weight)
    return (*answered, *_label(label, join, engine_of, origin_of))


class Taken(NamedTuple):
    """Events of a block that were taken, and their results."""

    end: int
    """Index of the event behind them."""
    is_event: bool
    """Whether that event is one for `step`."""
    expires: bool
    """Whether something expires by its time, which is to be handled before it."""
    at: Counts
    """Indices of the events that are predictions."""
    probabilities: Floats
    versions: list[int]
    """Versions of the maps that answered, one for each of `weights`."""
    weights: Floats
    """Weights of the shift correction, float64[m, 2]."""
    limits: Sequence[RateLimits | None]
    """Limits of the rate then, one for each of `weights`; None: none were formed."""
    which: npt.NDArray[np.intp]
    """Index of its version, weights and limits for each prediction."""
    drawn: Floats
    """One over the chance that the label of each prediction is asked for."""
    ends: Counts
    """Indices of the events that are labels which met their prediction."""
    scores: Floats
    """Scores of the predictions that these labels met."""
    forecasts: Floats
    """Probabilities that were answered for these predictions."""
    predicted_at: Floats
    """Event times of these predictions in seconds; NaN if there is none."""
    keys: Sequence[str | None]
    """Keys of these predictions."""
    memos: Sequence[Memo]
    """Values that engines kept with these predictions, where these keep any."""
    weights_of_labels: Floats
    """Weights of these labels."""
    unasked: Sequence[int]
    """Indices of the labels that were not asked for: they did nothing."""


class BlockSteps:
    """A loop over the events of blocks.

    Parameters
    ----------
    join
        the join that matches labels with predictions.
    engine_of
        function that returns the engine of a key; an engine may be put away when another is asked for.
    admits
        whether a key has an engine, or may have one.
    sampler
        what says which predictions are to be labelled; None: labels are taken as they come.
    """

    def __init__(
        self,
        join: Join,
        engine_of: EngineOf,
        admits: Callable[[str | None], bool],
        sampler: Sampler | None = None,
    ) -> None:
        self.join, self._engine_of, self._admits, self._sampler = join, engine_of, admits, sampler
        self._rows: JoinRules = join
        self._renumbered = 0
        # Of predictions: which event, the number of version and weights. Of labels: which event, the key.
        self._whole = np.empty((4, AT_MOST), np.int64)
        # Of predictions: the probability. Of labels: score, forecast, and time of the prediction. Weights of
        # both.
        self._real = np.ones((6, AT_MOST))
        self._weights = np.empty((AT_MOST, 2))
        self._engine: EventRules | None = None
        self._code = _UNKNOWN

    def begin(self, block: Block) -> None:
        """Begin with a block of events in the order of arrival."""
        self._block = block
        size, ids, rows = len(block), block.ids, self._rows
        odd = np.zeros(size if block.others else 0, np.bool_)
        if block.others:
            odd[list(block.others)] = True
        codes = np.zeros(0, np.int32)
        if block.keys is not None:
            numbers = rows.codes_of(dict.fromkeys(block.keys))
            codes = np.array([numbers[key] for key in block.keys], np.int32)
        self._renumbered = rows.renumbered
        self._ids = ids.data.tobytes()
        # As memoryviews, whose elements are plain numbers in Python, too.
        columns = ids.starts, ids.sizes, block.scores, block.labels, block.times, codes, odd.view(np.uint8)
        views: list[Any] = [np.ascontiguousarray(column).data for column in columns]
        self._starts, self._sizes, self._scores, self._labels, self._times, self._codes, self._odd = views
        self._kept = block.kept
        self._is_target = block.domain == "target"

    def take(self, at: int, emits: Callable[[Emission], None]) -> Taken:
        """Take events from one on; results and state are the same as with `step` for each.

        ``emits`` is called with each emission of an engine, right behind the event.
        """
        block, rows = self._block, self._rows
        if rows.renumbered != self._renumbered:
            self.begin(block)
        self._predictions = self._joins = 0
        self._versions, self._memos = list[int](), list[Memo]()
        self._limits, self._unasked = list[Any](), list[int]()
        self._engine, self._code = None, _UNKNOWN
        self._at = at
        why = self._loop(min(at + AT_MOST, len(block)), emits)
        self._engine = None
        counts = self.join.counts
        counts.predictions += self._predictions
        counts.labels += self._joins
        counts.joined += self._joins
        whole, real = np.asarray(self._whole), np.asarray(self._real)
        predictions, joins = slice(self._predictions), slice(self._joins)
        names = rows.names
        return Taken(
            self._at,
            why == EVENT,
            why == EXPIRES,
            whole[0, predictions],
            real[0, predictions].copy(),
            self._versions,
            np.asarray(self._weights)[: len(self._versions)].copy(),
            self._limits,
            whole[1, predictions].astype(np.intp),
            real[4, predictions].copy(),
            whole[2, joins],
            real[1, joins],
            real[2, joins],
            real[3, joins],
            [names[code] for code in whole[3, joins].tolist()],
            self._memos,
            real[5, joins],
            self._unasked,
        )

    def _loop(self, end: int, emits: Callable[[Emission], None]) -> int:
        """Take events in turn until this one; return the reason why the loop ended."""
        rows, ids, is_target = self._rows, self._ids, self._is_target
        at, has_odd, has_codes = self._at, len(self._odd) > 0, len(self._codes) > 0
        predictions = joins = run = 0
        weights: tuple[float, float] | None = None
        version, answered, again, limits = -1, None, None, None  # of the latest prediction
        memo: Memo | None = None
        sampler: Any = self._sampler
        drawn: Any = None
        begun: tuple[Emission, ...] = ()
        why = _END
        ahead = at
        while at < end:
            if at == ahead:
                ahead = min(at + _AHEAD, end)
                rows.look_ahead(ids, self._starts, self._sizes, at, ahead)
            score, label, size, time = self._scores[at], self._labels[at], self._sizes[at], self._times[at]
            is_prediction = score == score
            if (has_odd and self._odd[at]) or (
                is_prediction and not self._find_engine(self._codes[at] if has_codes else 0)
            ):
                why = _EVENT
                break
            if sampler is not None and time != time and sampler.lacks_time:
                why = _EVENT
                break
            if sampler is not None and label >= 0:
                asked = _UNKNOWN if is_prediction or not size else self._is_asked(at)
                if asked == _UNKNOWN:
                    why = _EVENT
                    break
                if not asked:
                    self._unasked.append(at)
                    at += 1
                    continue
            if rows.move(time) and rows.expire_rows() != _DONE:
                rows.again, why = True, _EXPIRES
                break
            row = rows.row_of(ids, at, self._starts[at], size) if size else 0
            if is_prediction:
                if row:
                    rows.again, why = True, _EVENT
                    break
            elif not row or not rows.waits_plainly(row, is_target) or not self._find_engine(rows._key[row]):
                rows.again, why = True, _EVENT
                break
            engine, begun = self._engine, ()
            if is_prediction:
                if engine._source.n + engine._target.n >= engine.limits_stop:  # type: ignore[union-attr]
                    engine.form_limits()  # type: ignore[union-attr]
                prediction_index = engine._unlabelled.n  # type: ignore[union-attr]
                served, formed = engine.served, engine.limits  # type: ignore[union-attr]
                probability, memo = served.forecast(score), None
                if engine.carries:  # type: ignore[union-attr]
                    kept = () if self._kept is None else self._kept[at]
                    probability, memo = engine.carry(kept, score, probability)  # type: ignore[union-attr]
                if sampler is not None:
                    chance = sampler.propensity(probability, None if time != time else time)
                    drawn = min(1.0 / chance, _HEAVIEST)
                    self._real[4, predictions] = drawn
                if (
                    engine is not answered
                    or served.version != version
                    or served.weights_now() is not weights
                    or formed is not limits
                ):
                    answered, version, weights = engine, served.version, served.weights_now()
                    limits, run = formed, len(self._versions)
                    self._versions.append(version)
                    self._limits.append(limits and limits[1])
                    self._weights[run, 0] = weights[0]
                    self._weights[run, 1] = weights[1]
                    again = (version, weights[0], weights[1]) if rows.keeps_answers else None
                if is_target:
                    begun = engine.observe_one(score, time)  # type: ignore[union-attr]
                if size:
                    row = rows.new_row(ids, self._starts[at], size)
                    code = self._code
                    rows.hold_row(
                        row, score, probability, time, prediction_index, is_target, code, again, drawn, memo
                    )
                    if sampler is not None and is_target and sampler.asks(rows.id_of(row), 1.0 / drawn):
                        engine.ask_label(score)  # type: ignore[union-attr]
                self._whole[0, predictions] = at
                self._whole[1, predictions] = run
                self._real[0, predictions] = probability
                predictions += 1
            if label >= 0:
                predicted_at, weight = time, 1.0
                if row:
                    real = _REAL * row
                    weight = rows.weight_of(row) or 1.0
                    score, probability = rows._real[real + 1], rows._real[real + 2]
                    predicted_at, prediction_index = rows._real[real + 3], rows._whole[_PAIR * row]
                    memo = rows.memo_of(row)
                    rows.settle(row, _LABELLED + label)
                self._whole[2, joins] = at
                self._whole[3, joins] = self._code
                self._real[1, joins] = score
                self._real[2, joins] = probability
                self._real[3, joins] = predicted_at
                self._real[5, joins] = weight
                joins += 1
                if memo is not None:
                    self._memos.append(memo)
                elif sampler is not None:
                    sampler.learn(probability, label)
                latest = time if time == time else _NO_TIME
                learned = engine.learn_label(  # type: ignore[union-attr]
                    score, label, is_target, latest, prediction_index, weight, memo
                )
                begun = begun + learned if learned else begun
            at += 1
            for emission in begun:
                emits(emission)
        self._predictions, self._joins, self._at = predictions, joins, at
        return why

    def _is_asked(self, at: int) -> int:
        """Return whether a label was asked for, `_UNKNOWN` where the prediction does not wait."""
        rows = self._rows
        row = rows.row_of(self._ids, at, self._starts[at], self._sizes[at])
        if not row or not rows.is_waiting(row):
            return _UNKNOWN
        weight = rows.weight_of(row)
        return bool(not weight or self._sampler.asks(rows.id_of(row), 1.0 / weight))  # type: ignore[union-attr]

    def _find_engine(self, code: int) -> bool:
        """Find the engine of the key with this number; return whether it may have one."""
        if code != self._code:
            key = self._rows.names[code]
            if not self._admits(key):
                return False
            self._engine, self._code = self._engine_of(key), code
        return True


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
    is_label = kind is LabelEvent or (not is_prediction and isinstance(event, LabelEvent))
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
    if type(time) is float:
        seconds = time
        if not -_LATEST < seconds < _LATEST:
            changed["time"] = read_time(time)
    elif time is not None:
        changed["time"] = read_time(time)
    if not is_label:
        if type(given.score) is not float or not 0.0 <= given.score <= 1.0:
            changed["score"] = check_score(given.score)
        if given.key is not None:
            changed["key"] = check_key(given.key)
        if given.domain not in DOMAINS:
            changed["domain"] = check_domain(given.domain)
    if not is_prediction:
        label = given.label
        if type(label) is not int or not (label == 0 or label == 1):
            changed["label"] = check_label(label)
    if event.weight is not None:
        changed["weight"] = check_weight(event.weight)
    return msgspec.structs.replace(event, **changed) if changed else event


def refused(event: Event, config: RecalibratorConfig, join: Join | None = None) -> Refusal | None:
    """Return why options of an engine, and of a join, refuse an event; None if they do not.

    Some need a time, some allow no weights. Events of a calibration go through no join.
    """
    if event.time is None:
        if not isinstance(event, PredictionEvent) and config.needs_time:
            return Refusal("missing_time", {"kind": "a label", "window": config.window})
        lacks = join.refuses(event) if join is not None and join.matures else None
        if lacks is not None:
            return lacks
    why = None if event.weight is None or event.weight == 1.0 else config.why_unweighted
    return None if why is None else Refusal("weight_not_allowed", {"weight": event.weight, "option": why})

"""Implied negatives: the counts are those of a batch that sees what was told in time."""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamcal import JoinConfig, LabelEvent, LabelledEvent, PredictionEvent, Recalibrator
from streamcal.engine.config import RecalibratorConfig, with_join
from streamcal.engine.emissions import Rejected
from streamcal.engine.engine import Engine
from streamcal.engine.stepping_c import emit, step
from streamcal.events import Event
from streamcal.join.join import Join
from streamcal.join.outcomes import EarlyPositive, JoinCounts, Joined
from streamcal.sketch.score_sketch import ScoreSketch
from tests.join.recorder import Recorder, emissions

AFTER = 10.0
END = 1e6
NEGATIVE: dict[str, Any] = {"missing_labels": "negative", "label_delay_limit": AFTER, "label_ttl": 1e5}


def drive(
    events: list[Event], until: float | None = None, **options: Any
) -> tuple[Join, list[Any], list[str]]:
    join, recorder = Join(JoinConfig(**(NEGATIVE | options))), Recorder()
    out: list[Any] = [each for event in events for each in emissions(join, event, recorder)]
    if until is not None:
        out += emit(join.move_to(until), lambda _: recorder)
    return join, recorder.learned, [each.reason for each in out if isinstance(each, Rejected)]


def later(time: float, number: int = 0) -> PredictionEvent:
    return PredictionEvent(f"later {number}", 0.9, time)


def test_no_label_is_a_negative_once_its_time_has_passed() -> None:
    events: list[Event] = [PredictionEvent("a", 0.3, 1.0), later(11.0)]
    assert drive(events)[1] == []  # until then, inclusively, a label may come
    join, learned, _ = drive([*events, later(11.5, 1)])
    assert learned == [Joined(0.3, 0.5, 0, "target", 1.0, None, 3, None, matured_at=11.0)]
    assert join.counts == JoinCounts(predictions=3, implied=1)


def test_labels_are_learned_in_the_order_of_predictions() -> None:
    """However soon the positive is told; it is told apart, and the label told last counts."""
    predictions = [PredictionEvent(id_, 0.3, time) for id_, time in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    told = [("c", 1, 4.0), ("b", 1, 5.0), ("b", 1, 6.0), ("b", 0, 7.0)]
    labels = [LabelEvent(*each) for each in told]
    join, learned, reasons = drive([*predictions, *labels], until=50.0)
    assert [each for each in learned if isinstance(each, EarlyPositive)] == [
        EarlyPositive(0.3, 3.0, 4.0, "target", None),
        EarlyPositive(0.3, 2.0, 5.0, "target", None),
    ]
    joined = [each for each in learned if isinstance(each, Joined)]
    assert [(each.predicted_at, each.labelled_at, each.label, each.matured_at) for each in joined] == [
        (1.0, None, 0, 11.0),
        (2.0, 7.0, 0, 12.0),
        (3.0, 4.0, 1, 13.0),
    ]
    assert reasons == ["duplicate label: there was one with id 'b' before"]
    assert join.counts == JoinCounts(3, 4, joined=2, duplicate=1, conflicting=1, implied=1)


def test_a_positive_that_comes_later_contradicts() -> None:
    events: list[Event] = [PredictionEvent("a", 0.3, 1.0), LabelEvent("a", 1, 12.0), LabelEvent("a", 0, 13.0)]
    join, learned, reasons = drive(events)
    assert [each.label for each in learned] == [0]
    late = "late label of a prediction that counts as 0: the prediction with id 'a' had none for 10 seconds"
    assert reasons == [late, late]
    assert join.counts == JoinCounts(1, 2, late=2, implied=1, contradicted=1)


def test_what_leaves_a_full_table_has_not_matured() -> None:
    events = [PredictionEvent(f"{i}", 0.3, 0.1 * i) for i in range(9)]
    join, learned, _ = drive([*events, LabelEvent("4", 1, 1.0)], until=50.0, max_pending=4)
    assert [each.label for each in learned] == [0] * 4
    assert join.counts == JoinCounts(9, 1, late=1, expired=5, implied=4)


def test_an_id_is_remembered_for_its_ttl_after_it_matured() -> None:
    events: list[Event] = [PredictionEvent("a", 0.3, 0.0), later(11.0), LabelEvent("a", 1, 30.0)]
    assert drive(events, label_ttl=20.0)[0].counts.contradicted == 1
    assert drive([*events[:2], LabelEvent("a", 1, 31.5)], label_ttl=20.0)[0].counts.early == 1


@pytest.mark.parametrize(
    ("event", "what"),
    [
        (PredictionEvent("a", 0.3), "a prediction"),
        (LabelEvent("a", 1), "a label"),
        (LabelledEvent(0.3, 1, "a"), "a prediction"),
    ],
)
def test_what_has_no_time_cannot_mature(event: Event, what: str) -> None:
    engine = Recalibrator(join=JoinConfig(**NEGATIVE))
    with pytest.raises(ValueError, match=f"^missing time: {what} needs a time, .* 10 seconds of event time$"):
        engine.step(event)
    assert engine.join.counts == JoinCounts()
    engine.step(LabelledEvent(0.3, 1))  # its label is final at once
    assert engine.target.labels == 1


# Laws


class Case(NamedTuple):
    """A prediction, and its labels in the order of time."""

    score: float
    time: float
    labels: tuple[tuple[float, int], ...]

    @property
    def told(self) -> list[int]:
        return [label for time, label in self.labels if time <= self.time + AFTER]

    @property
    def first(self) -> int:
        """The label that it is learned with."""
        return self.told[-1] if self.told else 0


def case_of(score: float, time: int, labels: list[tuple[int, int]]) -> Case:
    # Whole numbers, so that sums of times are exact.
    return Case(score, float(time), tuple((float(time + delay), label) for delay, label in sorted(labels)))


CASES = st.lists(
    st.builds(
        case_of,
        st.sampled_from([0.0, 0.25, 0.3, 0.9, 1.0]),
        st.integers(0, 40),
        st.lists(
            st.tuples(st.integers(0, 30), st.integers(0, 1)), max_size=3, unique_by=lambda pair: pair[0]
        ),
    ),
    max_size=12,
)


def events_of(cases: list[Case]) -> list[tuple[float, int, Event]]:
    """All events, each with its time and the number of its case."""
    events: list[tuple[float, int, Event]] = []
    for number, case in enumerate(cases):
        events.append((case.time, number, PredictionEvent(f"{number}", case.score, case.time)))
        events += [(time, number, LabelEvent(f"{number}", label, time)) for time, label in case.labels]
    return events


def run(
    events: list[Event], watermarks: list[float], config: JoinConfig
) -> tuple[Join, Engine, list[Joined]]:
    """Take events, in parts: a watermark holds during each; in the end, all is matured."""
    join, outcomes = Join(config), list[Any]()
    engine = Engine(with_join(RecalibratorConfig(mode="target"), config))
    size = max(1, -(-len(events) // len(watermarks)))
    for part, watermark in enumerate(watermarks):
        outcomes += emit(join.advance(watermark), lambda _: engine)
        for event in events[part * size : (part + 1) * size]:
            outcomes += step(event, join, lambda _: engine)
    outcomes += emit(join.advance(math.inf), lambda _: engine)
    outcomes += emit(join.move_to(END), lambda _: engine)
    return join, engine, [each for each in outcomes if isinstance(each, Joined)]


def sketch_of(pairs: list[tuple[float, int]]) -> bytes:
    sketch = ScoreSketch()
    sketch.add([score for score, _ in pairs], [label for _, label in pairs])
    return sketch.to_bytes()


def counted(engine: Engine) -> bytes:
    engine.to_bytes()  # lets the log read all labels
    return engine._target.log.sketch.to_bytes()


@given(CASES)
@example([Case(0.3, 0.0, ((30.0, 1),))])
def test_in_the_order_of_time_counts_are_those_of_the_batch(cases: list[Case]) -> None:
    events = [event for *_, event in sorted(events_of(cases), key=lambda each: each[:2])]
    join, engine, joined = run(events, [math.inf], JoinConfig(**NEGATIVE))
    assert counted(engine) == sketch_of([(case.score, case.first) for case in cases])
    assert engine.target.positives == sum(case.first for case in cases)
    assert sorted(each.predicted_at or 0.0 for each in joined) == sorted(case.time for case in cases)
    counts = join.counts
    assert counts.implied == sum(not case.told for case in cases)
    assert counts.joined == sum(bool(case.told) for case in cases)
    late = [[label for time, label in case.labels if time > case.time + AFTER] for case in cases]
    pairs = [(case, labels) for case, labels in zip(cases, late, strict=True) if not case.told]
    assert counts.contradicted == sum(sum(labels) for _, labels in pairs)
    assert counts.predictions == counts.joined + counts.implied


@given(CASES, st.randoms(use_true_random=False))
def test_what_is_implied_does_not_depend_on_which_partition_is_read_ahead(
    cases: list[Case], rng: random.Random
) -> None:
    """Labels before or after other predictions, as long as the watermark tells how far both are read."""
    events = sorted(events_of(cases), key=lambda each: each[:2])
    predictions = [e for *_, e in events if isinstance(e, PredictionEvent)]
    labels = [e for *_, e in events if isinstance(e, LabelEvent)]
    which = [0] * len(predictions) + [1] * len(labels)
    rng.shuffle(which)
    both = iter(predictions), iter(labels)
    mixed = [next(both[one]) for one in which]
    if any(len([e for e in labels if e.id == id_]) > 1 for id_ in {e.id for e in labels}):
        mixed = [*predictions, *labels]  # of two early labels the later counts, whenever it came
    join, engine, _ = run(mixed, [-math.inf], JoinConfig(**NEGATIVE))
    assert join.counts.implied == sum(not case.told for case in cases)
    assert counted(engine) == sketch_of([(case.score, case.first) for case in cases])

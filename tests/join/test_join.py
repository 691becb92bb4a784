"""The join's rules and counters: late, out of order, twice, early, never."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import JoinConfig, LabelEvent, LabelledEvent, PredictionEvent, Recalibrated
from streamcal.engine.emissions import Emission, Rejected
from streamcal.events import RAW_BYTES, Event, Origin
from streamcal.join.entries import Pending
from streamcal.join.id_table_c import EARLY, ENDED, WAITING, IdTable
from streamcal.join.join import Join
from streamcal.join.outcomes import JoinCounts, Joined, JoinState
from streamcal.join.packs import Pack
from tests.join.recorder import (
    EVENTS,
    Early,
    Entry,
    Recorder,
    Settled,
    emissions,
    entries_of,
    entry_of,
    put,
)
from tests.memory import write
from tests.nightly import one_in


def drive(events: list[Event], **options: float) -> tuple[Join, Recorder, list[Emission]]:
    join, recorder = Join(JoinConfig(**options)), Recorder()
    return join, recorder, [out for event in events for out in emissions(join, event, recorder)]


def counts(**wanted: int) -> JoinCounts:
    return JoinCounts(**wanted)


def test_a_label_meets_its_prediction() -> None:
    join, recorder, out = drive([PredictionEvent("a", 0.3, 1.0), LabelEvent("a", 1, 9.0)])
    assert recorder.learned == [Joined(0.3, 0.5, 1, "target", 1.0, 9.0, 3)]
    assert out == [Recalibrated("a", 0.3, 0.5, 0, (1.0, 1.0))]
    assert join.counts == counts(predictions=1, labels=1, joined=1)
    assert join.pending == 0


def test_a_label_says_what_had_been_seen_when_its_prediction_was_made() -> None:
    join, recorder = Join(), Recorder()

    def take(*events: Event) -> list[int]:
        recorder.learned.clear()
        for event in events:
            emissions(join, event, recorder)
            recorder.seen += 1
        return [joined.prediction_index for joined in recorder.learned]

    assert take(PredictionEvent("a", 0.3), PredictionEvent("b", 0.3), LabelEvent("b", 1)) == [4]
    assert take(LabelEvent("early", 1), LabelEvent("a", 1), PredictionEvent("early", 0.3)) == [3, 8]
    assert take(LabelledEvent(0.3, 1), LabelledEvent(0.3, 1, "both")) == [9, 10]


def test_the_first_label_wins() -> None:
    events: list[Event] = [
        PredictionEvent("a", 0.3),
        LabelEvent("a", 1),
        LabelEvent("a", 1),
        LabelEvent("a", 0),
    ]
    join, recorder, out = drive(events)
    assert [joined.label for joined in recorder.learned] == [1]
    assert [o.reason for o in out if isinstance(o, Rejected)] == [
        "duplicate label: there was one with id 'a' before",
        "conflicting label: the label of id 'a' is 1 already, which stays, got 0",
    ]
    assert join.counts == counts(predictions=1, labels=3, joined=1, duplicate=2, conflicting=1)


@pytest.mark.parametrize(
    "events",
    [
        [PredictionEvent("a", 0.3), PredictionEvent("a", 0.4)],
        [PredictionEvent("a", 0.3), LabelEvent("a", 1), PredictionEvent("a", 0.4)],
        [LabelledEvent(0.3, 1, "a"), PredictionEvent("a", 0.4)],
    ],
    ids=["pending", "joined", "labelled"],
)
def test_a_duplicate_prediction_is_refused(events: list[Event]) -> None:
    join, recorder, out = drive(events)
    assert sum(isinstance(o, Recalibrated) for o in out) == 1
    assert out[-1].code == "duplicate_prediction"
    assert join.counts.duplicate == 1
    assert len(recorder.learned) <= 1


def test_a_label_event_may_repeat_the_score() -> None:
    join, recorder, out = drive(
        [PredictionEvent("a", 0.3), LabelledEvent(0.3, 1, "a"), LabelledEvent(0.3, 0, "a")]
    )
    assert recorder.learned == [Joined(0.3, 0.5, 1, "target", prediction_index=3)]
    assert out[-1].code == "conflicting_label"
    assert join.counts == counts(predictions=1, labels=2, joined=1, duplicate=1, conflicting=1)


def test_expiry_by_event_time() -> None:
    events: list[Event] = [
        PredictionEvent("a", 0.3, 0.0),
        LabelEvent("nobody", 1, 0.0),
        PredictionEvent("b", 0.3, 10.0),
        PredictionEvent("c", 0.3, 10.5),  # a and the label of nobody expire
        LabelEvent("a", 1, 10.6),
        LabelEvent("b", 1, 10.7),
    ]
    join, recorder, out = drive(events, label_ttl=10.0)
    reasons = [o.reason for o in out if isinstance(o, Rejected)]
    assert reasons == [
        "unmatched label: no prediction with id 'nobody' has come",
        "late label: the prediction with id 'a' has expired by 1970-01-01 00:00:10 UTC"
        " (label_ttl is 10 seconds, max_pending 1,000,000)",
    ]
    assert len(recorder.learned) == 1
    assert join.counts == counts(predictions=3, labels=3, joined=1, early=1, late=1, expired=1, unmatched=1)


def test_nothing_expires_beyond_the_watermark() -> None:
    join, recorder = Join(JoinConfig(label_ttl=10.0)), Recorder()

    def take(*events: Event) -> list[str]:
        out = [each for event in events for each in emissions(join, event, recorder)]
        return [each.code for each in out if isinstance(each, Rejected)]

    assert join.advance(-math.inf) == ()
    assert take(PredictionEvent("a", 0.3, 0.0), LabelEvent("nobody", 1, 0.0)) == []
    assert take(PredictionEvent("b", 0.3, 100.0)) == []
    assert join.advance(10.0) == ()  # as far as labels have been read: a has until then, inclusively
    assert take(LabelEvent("a", 1, 9.0), PredictionEvent("c", 0.3, 200.0)) == []
    (reject,) = join.advance(50.0)
    assert reject.event == LabelEvent("nobody", 1, 0.0)
    assert join.counts.expired == 0
    assert take(LabelEvent("b", 1, 105.0)) == []
    join.advance(211.0)
    assert join.counts.expired == 0  # the clock is at 200: c has until 210
    assert take(PredictionEvent("d", 0.3, 300.0)) == []
    assert join.counts == counts(predictions=4, labels=3, joined=2, early=1, unmatched=1, expired=1)


def test_a_watermark_that_goes_back_holds_back() -> None:
    """A partition that was added is behind the others at first."""
    join, recorder = Join(JoinConfig(label_ttl=10.0)), Recorder()
    join.advance(50.0)
    emissions(join, PredictionEvent("a", 0.3, 0.0), recorder)
    join.advance(5.0)
    emissions(join, PredictionEvent("b", 0.3, 40.0), recorder)
    assert join.counts.expired == 0
    join.advance(40.0)
    assert join.counts.expired == 1


def test_memory_is_bounded_by_count() -> None:
    predictions: list[Event] = [PredictionEvent(f"p{i}", 0.3) for i in range(10)]
    labels: list[Event] = [LabelEvent(f"l{i}", 1) for i in range(10)]
    join, _, out = drive([*predictions, *labels], max_pending=4)
    assert join.pending == 4
    assert join.counts == counts(predictions=10, labels=10, early=10, expired=6, unmatched=6)
    assert sum(isinstance(o, Rejected) for o in out) == 6
    assert join.count(ENDED) == 4


def test_close_rejects_what_still_waits() -> None:
    join, _, _ = drive([LabelEvent("a", 1), PredictionEvent("b", 0.3)])
    (reject,) = join.close()
    assert reject.event == LabelEvent("a", 1)
    assert join.counts.unmatched == 1
    assert join.close() == ()


@given(EVENTS, st.integers(1, 4))
def test_nothing_is_silent(events: list[Event], max_pending: int) -> None:
    join, recorder, out = drive(events, label_ttl=10.0, max_pending=max_pending)
    out += join.close()
    c = join.counts
    answered = sum(isinstance(o, Recalibrated) for o in out)
    rejected = sum(isinstance(o, Rejected) for o in out)
    assert c.predictions == answered == c.joined + c.expired + join.pending
    assert len(recorder.learned) == c.joined
    assert rejected == c.duplicate + c.late + c.unmatched
    labelled = [event for event in events if not isinstance(event, PredictionEvent)]
    refused = [o for o in out if isinstance(o, Rejected) and not isinstance(o.event, PredictionEvent)]
    assert c.labels == len(labelled) == c.joined + len(refused)
    assert c.conflicting <= c.duplicate


# The join's rows by id, and what a store has of them: a join that resumes equals one that never stopped


def again(state: JoinState) -> JoinState:
    """Return a state as it comes out of a store."""
    return msgspec.json.decode(msgspec.json.encode(state), type=JoinState)


OPTIONS = st.sampled_from([{}, *({"label_delay_limit": limit} for limit in (4.0, 12.0))]).map(
    lambda options: options | {"missing_labels": "negative" if options else "drop"}
)


@given(EVENTS, st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1), st.integers(1, 5), OPTIONS)
def test_a_join_resumes_from_its_packs(
    events: list[Event], cuts: list[tuple[int, bool]], bound: int, options: dict[str, Any]
) -> None:
    config = JoinConfig(label_ttl=10.0, max_pending=bound, **options)
    plain, stored = Join(config), Join(config)
    packs: dict[int, Pack] = {}
    learned = Recorder(), Recorder()
    start = 0
    for size, stops in cuts * (len(events) // len(cuts) + 1):
        batch = events[start : start + size]
        start += size
        for event in batch:
            assert emissions(stored, event, learned[1]) == emissions(plain, event, learned[0])
        write(packs, stored.changes())
        loaded = Join(config, again(stored.state))
        loaded.load(packs[number] for number in sorted(packs))
        for queue in (WAITING, ENDED, EARLY):
            assert entries_of(loaded, queue) == entries_of(plain, queue)
        if stops:
            stored = loaded
    assert learned[0].learned == learned[1].learned
    assert stored.state == plain.state
    assert stored.close() == plain.close()


@pytest.mark.parametrize("seed", one_in(4, range(12)))
def test_a_table_is_three_dicts_in_order(seed: int) -> None:
    rng, rows = random.Random(seed), IdTable()
    wanted: list[dict[str, Entry]] = [{}, {}, {}]
    for step in range(3000):
        id_ = (
            "é" * rng.choice([0, 0, 1, 9])
            + f"i{rng.randrange(400 if step < 2000 else 40)}"
            + "x" * rng.randrange(2)
        )
        row, known = rows.known(id_), [each for each in wanted if id_ in each]
        assert (row > 0) == bool(known)
        if row:
            assert rows.id_of(row) == id_
            assert entry_of(rows, row) == known[0][id_]
            if rng.random() < 0.5 + 0.4 * (step >= 2000):
                rows.remove(row)
                del known[0][id_]
        else:
            score, key = rng.random(), rng.choice([None, "k", "l"])
            pending = Pending(
                float(step), score, score / 2, rng.choice(["source", "target"]), key, None, step
            )
            kinds: list[Entry] = [
                pending,
                msgspec.structs.replace(pending, told=(1, None), weight=2.0),
                Settled(None, rng.choice([0, 1, None])),
                Settled(float(step), 1, pending),
                Early(None, LabelEvent(id_, 1, 3.0)),
            ]
            entry = rng.choice(kinds)
            put(rows, step + 1, id_, entry)
            queue = WAITING if isinstance(entry, Pending) else EARLY if isinstance(entry, Early) else ENDED
            wanted[queue][id_] = entry
        if not step % 100:
            for queue, each in enumerate(wanted):
                assert entries_of(rows, queue) == list(each.items())
                assert rows.count(queue) == len(each)
                assert rows.oldest(queue) == (rows.known(next(iter(each))) if each else 0)


# What waits is bounded in bytes, and what the join says of a label whose prediction is gone is true


def test_a_label_that_waits_keeps_of_its_text_what_a_reject_keeps() -> None:
    join = Join()
    raw = b'{"id":"a","label":1,"junk":"' + b"x" * 1_000_000 + b'"}'
    for i in range(20):
        origin = Origin("labels", i, raw)
        emissions(join, LabelEvent(f"{i}", 1, origin=origin), Recorder())
    rejects = join.close()
    assert len(rejects) == 20
    for reject in rejects:
        assert reject.event.origin.raw == raw[:RAW_BYTES]
        assert reject.event.origin.line == int(reject.event.id or "")


def test_a_time_that_is_none_does_not_move_the_clock() -> None:
    join = Join()
    join.move_to(5.0)
    join.move_to(math.nan)
    assert join.time == 5.0

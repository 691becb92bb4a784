"""Event times of a run: each partition's are judged in its own order, however it is read or restarted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.events import Event, LabelEvent, Origin, PredictionEvent
from streamcal.events.codec import Malformed
from streamcal.events.guard import GuardState
from streamcal.run.order import Merge, TimesRead

DAY = 86_400.0
NOW = 1_700_000_000.0
JUMP = 30 * DAY
FAR = 4_070_908_800.0
"""The year 2099."""


@dataclass
class Cut:
    """Some consecutive events of a partition; its position is how many came before."""

    events: Sequence[Event | Malformed]
    start: int
    partition: str = ""

    def origin(self, index: int) -> Origin:
        return Origin("source", self.start + index, b"")

    def position(self, count: int) -> int:
        return self.start + count


def predictions(times: Sequence[float | None], name: str = "p") -> list[Event | Malformed]:
    return [PredictionEvent(f"{name}{index}", 0.5, time) for index, time in enumerate(times)]


def read(
    times: Sequence[float | None], *, whole: bool = True, name: str = "p"
) -> tuple[list[Any], TimesRead]:
    """Return the events of a source that is read at once, and how their times were taken."""
    merge = Merge([((name, ""), -math.inf)], whole=whole, max_jump=JUMP)
    merge.add(name, [Cut(predictions(times, name), 0)], ended=True)
    batch = merge.take()
    return list(batch.events), batch.times_read


@given(
    st.lists(st.lists(st.one_of(st.none(), st.integers(0, 40)), max_size=30), min_size=1, max_size=4),
    st.integers(1, 30),
)
def test_a_lane_far_ahead_is_taken_in_parts_of_the_same_order(
    lanes: list[list[int | None]], most: int
) -> None:
    def taken(most: int) -> list[list[Any]]:
        merge = Merge([(("events", str(lane)), -math.inf) for lane in range(len(lanes))], whole=True)
        cuts = [
            Cut(predictions([NOW + time if time else None for time in (1, *times)], f"{lane}-"), 0, str(lane))
            for lane, times in enumerate(lanes)
        ]
        merge.add("events", cuts, ended=True)
        return [list(batch.events) for batch in iter(lambda: merge.take(most=most), None)]

    whole, parts = taken(1_000), taken(most)
    assert [event for part in parts for event in part] == [event for part in whole for event in part]
    at = Counter(
        key for times in lanes for key in accumulate((1, *times), lambda *pair: max(filter(None, pair)))
    )
    assert all(len(part) <= most + max(at.values()) for part in parts)  # those at one time come together


def labels(times: Sequence[float | None]) -> list[Event | Malformed]:
    return [LabelEvent(f"p{index}", 1, time) for index, time in enumerate(times)]


def merged(timed: Sequence[float | None]) -> list[Event | Malformed]:
    merge = Merge([(("predictions", ""), -math.inf), (("labels", ""), -math.inf)], whole=True)
    merge.add("predictions", [Cut(predictions([NOW + i for i in range(300)]), 0)], ended=True)
    merge.add("labels", [Cut(labels(timed), 0)], ended=True)
    batch = merge.take()
    return [*batch.events]


def test_labels_without_times_do_not_go_with_predictions_that_have_them() -> None:
    with pytest.raises(ValueError, match="times in predictions and none in the first events of labels"):
        merged([None] * 300)


def test_a_label_without_a_time_is_rejected_where_others_have_one() -> None:
    found = merged([NOW + i if i % 3 else None for i in range(300)])
    rejected = [event for event in found if isinstance(event, Malformed)]
    assert [event.code for event in rejected] == ["missing_time"] * 100
    assert rejected[0].reason == "missing time: others of labels have one"


def test_a_file_whose_newest_events_come_first_is_refused() -> None:
    times = [NOW - i for i in range(40)]
    with pytest.raises(ValueError, match=r"the newest events of file come first .* sort it by time"):
        read(times, name="file")


def test_a_partition_that_begins_late_has_the_others_for_neighbours() -> None:
    """Else its first event, in the year 2099, would move the clock, and all that is pending would expire."""
    names = ("p", ""), ("q", "")
    merge = Merge([(name, -math.inf) for name in names], whole=False, max_jump=JUMP)
    merge.add("p", [Cut(predictions([NOW + i for i in range(20)]), 0)])
    first = merge.take()
    times = [FAR, *(NOW + i for i in range(20, 40))]
    again = Merge(
        [(names[0], NOW + 19), (names[1], -math.inf)], whole=False, max_jump=JUMP, guards=first.guards
    )
    for each in (merge, again):
        each.add("q", [Cut(predictions(times), 0)])
        batch = each.take()
        assert [event.time for event in batch.events] == [None, *times[1:]]


TIMES = st.one_of(
    st.floats(NOW, NOW + 10 * DAY),
    st.floats(NOW, NOW + 100 * DAY),
    st.sampled_from([None, 0.0, FAR, NOW * 1e3, NOW * 1e9, 1e20, math.inf]),
)


@given(st.lists(TIMES, min_size=1, max_size=150), st.booleans(), st.data())
def test_the_outcome_is_the_same_however_it_is_read_and_restarted(
    times: list[float | None], whole: bool, data: st.DataObject
) -> None:
    """The second reading is cut at random, taken in parts, and restarted from what a commit keeps."""
    try:
        at_once = read(times, whole=whole)
    except ValueError:
        return  # newest first
    cuts = sorted({0, len(times), *data.draw(st.lists(st.integers(0, len(times)), max_size=8))})
    events = predictions(times)
    seen: list[Any] = []
    counted = TimesRead()
    done, reached = 0, -math.inf
    guards = {"other": {"": GuardState(begun=True)}}
    while done < len(events):
        merge = Merge(
            [(("p", ""), reached), (("other", ""), -math.inf)], whole=whole, max_jump=JUMP, guards=guards
        )
        merge.add(
            "p", [Cut(events[a:b], a) for a, b in pairwise(sorted({done, *cuts})) if a >= done], ended=True
        )
        other = data.draw(st.floats(NOW, NOW + 100 * DAY))  # its next event bounds what may be taken
        merge.add("other", [Cut(predictions([other], "other"), 0)], ended=data.draw(st.booleans()))
        batch = merge.take()
        if batch is None:
            continue
        own = [event for event in batch.events if event.id != "other0"]
        if "p" not in batch.positions:
            continue
        done += len(own)
        assert batch.positions["p"][""] == done
        seen += own
        counted.converted += batch.times_read.converted
        counted.mistimed += batch.times_read.mistimed
        counted.backwards += batch.times_read.backwards
        counted.untimed += batch.times_read.untimed
        reached, guards["p"] = batch.times["p"][""], batch.guards["p"]
    assert seen == at_once[0]
    assert counted == at_once[1]


def test_one_event_in_the_far_future_is_rejected_alone() -> None:
    times = [NOW + i for i in range(100)]
    times[20] = FAR
    events, taken = read(times, whole=True)
    assert [event.time for event in events] == [*times[:20], None, *times[21:]]
    assert isinstance(events[20], Malformed)
    assert "2099-01-01" in events[20].reason
    assert taken == TimesRead(mistimed=1)

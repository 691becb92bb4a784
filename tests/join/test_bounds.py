"""What waits is bounded in bytes, and what the join says of a label whose prediction is gone is true."""

from __future__ import annotations

import math

import pytest

from streamcal import JoinConfig, LabelEvent, PredictionEvent
from streamcal.engine.emissions import Rejected
from streamcal.events import RAW_BYTES, Event, Origin
from streamcal.join.join_c import Join
from tests.join.recorder import Recorder, emissions


def test_a_label_that_waits_keeps_of_its_text_what_a_reject_keeps() -> None:
    join = Join()
    raw = b'{"id":"a","label":1,"junk":"' + b"x" * 1_000_000 + b'"}'
    for i in range(20):
        origin = Origin("labels", i, raw)
        emissions(join, LabelEvent(f"{i}", 1, origin=origin), Recorder())
    rejects = join.close()
    assert len(rejects) == 20
    for reject in rejects:
        assert reject.event.origin is not None
        assert reject.event.origin.raw == raw[:RAW_BYTES]
        assert reject.event.origin.line == int(reject.event.id or "")


def reasons(events: list[Event], **options: float) -> list[str]:
    join, recorder = Join(JoinConfig(**options)), Recorder()  # type: ignore[arg-type]
    out = [out for event in events for out in emissions(join, event, recorder)]
    return [each.reason for each in (*out, *join.close()) if isinstance(each, Rejected)]


def test_a_label_whose_prediction_came_and_expired_is_not_said_never_to_have_had_one() -> None:
    events = [
        PredictionEvent("a", 0.3, 1000.0),
        PredictionEvent("b", 0.3, 1011.0),  # a expires
        PredictionEvent("c", 0.3, 1022.0),  # that it did is forgotten
        LabelEvent("a", 1, 1023.0),
    ]
    assert reasons(events, label_ttl=10.0) == [
        "unmatched label: no prediction with id 'a' has come, or it was settled before"
        " 1970-01-01 00:16:53 UTC (label_ttl is 10 seconds, max_pending 1,000,000)"
    ]


def test_a_time_that_is_none_does_not_move_the_clock() -> None:
    join = Join()
    join.move_to(5.0)
    join.move_to(math.nan)
    assert join.clock == 5.0


@pytest.mark.parametrize("jump", [None, math.inf, 1.0, 2_592_000])
def test_a_jump_may_be_of_any_length(jump: float | None) -> None:
    config = JoinConfig(max_jump=jump)
    again = JoinConfig.model_validate_json(config.model_dump_json())
    assert Join(again).max_jump == Join(config).max_jump == (math.inf if jump is None else jump)


@pytest.mark.parametrize("jump", [0.0, -1.0, math.nan, "long"])
def test_or_is_refused(jump: object) -> None:
    with pytest.raises(ValueError, match="max_jump"):
        JoinConfig(max_jump=jump)  # type: ignore[arg-type]

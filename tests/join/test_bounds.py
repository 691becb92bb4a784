"""What waits is bounded in bytes, and what the join says of a label whose prediction is gone is true."""

from __future__ import annotations

import math

from streamcal import LabelEvent
from streamcal.events import RAW_BYTES, Origin
from streamcal.join.join import Join
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


def test_a_time_that_is_none_does_not_move_the_clock() -> None:
    join = Join()
    join.move_to(5.0)
    join.move_to(math.nan)
    assert join.time == 5.0

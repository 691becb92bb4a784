"""When events are taken many at a time, and when one by one."""

from __future__ import annotations

from streamcal.run.striding import stride


def strides(count: int, ends: list[int], *, goes_on: bool) -> tuple[list[int], list[tuple[int, int]]]:
    """Return where stretches began that end before these events, and what was taken one by one."""
    began, stepped = [], []

    def stretch_at(at: int, end: int) -> tuple[int, bool]:
        began.append(at)
        stop = min((each for each in ends if each > at), default=end)
        return min(stop, end) - at, goes_on and stop <= end

    stride(count, stretch_at, lambda at, end: stepped.append((at, end)))
    return began, stepped


def test_one_short_stretch_behind_which_something_was_due_is_no_reason_for_steps() -> None:
    """A mixture learns every 64 labels, at moments that no batch begins with."""
    _, stepped = strides(2000, [10, 400, 800, 1200, 1210, 1600], goes_on=True)
    assert stepped == []


def test_several_in_a_row_are() -> None:
    began, stepped = strides(1000, list(range(10, 1000, 10)), goes_on=True)
    assert began[:3] == [0, 10, 148]  # 20 events were taken, then 128 one by one
    assert stepped[0] == (20, 148)


def test_a_short_stretch_that_another_event_ended_is() -> None:
    _, stepped = strides(1000, [10], goes_on=False)
    assert stepped == [(10, 138)]

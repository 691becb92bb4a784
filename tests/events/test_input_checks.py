"""Labels and scores that mean something else end a run; single bad ones are rejects."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import Origin
from streamcal.events import Event
from streamcal.events.codec import JsonDecoder, Malformed
from streamcal.events.columns import Columns
from streamcal.events.input_checks import FIRST, UNLABELLED, InputChecks, MeaningError


def decoded(lines: list[str], columns: Columns | None = None) -> list[Event | Malformed]:
    decoder = JsonDecoder("target", columns)
    return [decoder.decode(line.encode()) for line in lines]


def labels(values: list[object], columns: Columns | None = None) -> list[Event | Malformed]:
    lines = [msgspec.json.encode({"id": str(i), "label": value}).decode() for i, value in enumerate(values)]
    return decoded(lines, columns)


def fed(
    events: list[Event | Malformed], cuts: list[int], positive: object = None, *, ends: bool = True
) -> tuple[list[Event | Malformed], str | None]:
    """Feed events in batches, the state stored in between; return them decided, and why it was refused."""
    state, out, columns = InputChecks(), [], Columns.model_validate({"positive": positive})
    bounds = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    try:
        for start, end in pairwise(bounds):
            state = msgspec.json.decode(msgspec.json.encode(state), type=InputChecks)
            batch = events[start:end]

            def origin_of(index: int, start: int = start) -> Origin:
                return Origin("f", start + index + 1, b"")

            if positive is not None:
                batch = state.decide(batch, positive)
            if not state.settled:
                state.take(batch, origin_of, columns)
            for index, event in enumerate(batch):
                if isinstance(event, Malformed):
                    state.refused(event, index, origin_of)
            state.events += len(batch)
            out += batch
        if ends:
            state.end(columns)
    except MeaningError as error:
        return out, str(error)
    return out, None


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ([-1, 1] * 50, "labels of class 1 only could be accepted"),
        ([1] * 500 + [2], "'2' (1 time, first in f, line 501)"),
        (["spam", "ham"] * 50, "no label could be accepted, while these were refused: 'spam' (5 times"),
        ([0] * 20 + ["unknown"] * 10 + [1], "'unknown' (10 times, first in f, line 21)"),
    ],
)
def test_one_class_while_others_are_refused(values: list[object], refused: str) -> None:
    for cuts in ([], [1], [7, 30, 44]):
        said = fed(labels(values), cuts)[1]
        assert refused in said
        assert "--positive" in said


@pytest.mark.parametrize(
    "values",
    [
        *([0, 1] * 100 + [7] * 9, [0, 1] * 200 + [7] * 20, [0, 1] + ["unknown"] * 500, [7]),
        [0] * 30 + [None] * 100,
    ],
)
def test_single_bad_labels_are_only_rejects(values: list[object]) -> None:
    assert fed(labels(values), [3, 40])[1] is None


@pytest.mark.parametrize("values", [[0, 1, 2] * 30, [0] * 30 + [2] * 9 + [1] + [2], [0, 1] * 90 + [2] * 10])
def test_numbers_of_three_classes_are_refused(values: list[object]) -> None:
    said = {fed(labels(values), cuts)[1] for cuts in ([], [1], [7, 30, 44], [188])}
    (words,) = said
    assert "labels name more classes than 0 and 1: others, such as 2, were refused (10 times" in words


def test_scores_in_percent() -> None:
    def scores(values: list[float]) -> list[Event | Malformed]:
        return decoded([f'{{"id":"{i}","score":{value}}}' for i, value in enumerate(values)])

    percent = [i / 7 for i in range(700)]
    for values, ends in ((percent, False), (percent[:20], True), ([0.5, 37, 0.2, 88], True)):
        said = fed(scores(values), [3])[1] if ends else fed(scores(values), [3], ends=False)[1]
        assert "Divide all scores by 100" in said
        assert "first in f, line" in said
    for values, advice in (
        ([0.5, 400, 37, 999, *range(1, 99)], "Divide all scores by the largest"),
        ([0.5, -3, 4, *range(1, 99)], "Turn each score s into 1 / (1 + exp(-s))"),
    ):
        assert advice in str(fed(scores(values), [3])[1])
    for values in (
        *([0.5] * 400 + [37.0], [0.5, 37.0], [0.5] * FIRST + [50.0] * 500, [0.9, 1.0000001] * 300),
        *([0.5, 1e9] * 300, [0.5, -3.0] * 300),
    ):
        assert fed(scores(values), [3])[1] is None, values[:3]


VALUES = st.lists(st.sampled_from([0, 1, 1, 2, -1, "yes", None]), max_size=60)


@given(VALUES, st.lists(st.integers(0, 60), max_size=4), st.sampled_from([None, 1, 2]))
def test_nothing_depends_on_how_reads_are_cut(
    values: list[object], cuts: list[int], positive: object
) -> None:
    columns = Columns.model_validate({"positive": positive})
    events = labels(values, columns)
    whole, why = fed(events, [], positive)
    parts, why_too = fed(events, cuts, positive)
    assert why == why_too
    if why is None:
        assert whole == parts


def lines_of(count: int, field: str) -> list[str]:
    return [f'{{"id":"{i}","{field}":1,"time":{i}}}' for i in range(count)]


@pytest.mark.parametrize(("count", "cuts"), [(UNLABELLED, [7, 50]), (3, [])])
def test_labels_without_a_label_end_the_run(count: int, cuts: list[int]) -> None:
    columns = Columns(label="outcome").of("labels")
    said = fed(decoded(lines_of(count, "y"), columns), cuts, ends=count < UNLABELLED)[1]
    assert f"no event ({count} times, first in f, line 1) has a field 'outcome'" in said
    assert "--label NAME" in said

"""Events of many classes: every form gives the same event, and what is wrong is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.events import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.codec import CsvDecoder, JsonDecoder
from streamcal.events.columns import Columns
from streamcal.events.fields import Malformed
from streamcal.events.table_codec import RowsDecoder

COLUMNS = Columns(classes=("cat", "dog", "3"), keep=("country",))
PREDICTION = PredictionEvent("a1", 0.5, kept=("DE", 0.5, 0.25, 0.25))


def decoded(fields: Any, columns: Columns = COLUMNS) -> Any:
    return JsonDecoder("target", columns).decode(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "scores",
    [
        {"scores": {"cat": 0.5, "dog": 0.25, "3": 0.25}},
        {"scores": [0.5, 0.25, 0.25]},
        {"p_cat": 0.5, "p_dog": 0.25, "p_3": 0.25},
    ],
)
def test_every_form_of_scores_gives_the_same_event(scores: dict[str, Any]) -> None:
    assert decoded({"id": "a1", "country": "DE", **scores}) == PREDICTION
    block = json.dumps({"id": "a1", **scores}).encode()
    assert JsonDecoder("target", COLUMNS).decode_lines(block) is None, "lines are decoded one by one"


def test_tables_have_a_column_for_each_class() -> None:
    names = ["id", "p_cat", "p_dog", "p_3", "country", "label"]
    rows = CsvDecoder(",".join(names).encode(), "target", COLUMNS)
    assert rows.decode(b"a1,0.5,0.25,0.25,DE,") == PREDICTION
    assert rows.decode(b"a1,0.5,0.25,0.25,DE,3") == LabelledEvent(0.5, 2, "a1", kept=PREDICTION.kept)
    assert rows.decode(b"a1,,,,,dog") == LabelEvent("a1", 1)
    missing = rows.decode(b"a1,0.5,,0.5,DE,")
    assert isinstance(missing, Malformed)
    assert missing.reason.startswith("there must be a score of each class, 'dog' has none")
    table = RowsDecoder(names, "target", COLUMNS)
    assert table.kept == ("country", "p_cat", "p_dog", "p_3")
    kept: list[list[Any]] = [["DE", None], [0.5, None], [0.25, None], [0.25, None]]
    found = table.decode({"id": ["a1", "a1"], "label": [None, "dog"]}, kept, 2)
    assert found == [PREDICTION, LabelEvent("a1", 1)]
    assert COLUMNS.required("events") == {"country", "p_cat", "p_dog", "p_3"}
    named = Columns(classes=("cat", "dog"), prefix="", score="s")
    assert decoded({"id": "a", "s": [1, 0]}, named) == decoded({"id": "a", "cat": 1.0, "dog": 0.0}, named)
    with pytest.raises(ValueError, match=r"must name score or label .here 'p_cat' or 'label'."):
        CsvDecoder(b"id,score", "target", COLUMNS)


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ({"cat": 0.5, "dog": 0.25, "3": 0.2}, "the scores of all classes must sum to 1, got a sum of 0.95"),
        ({"cat": 50, "dog": 25, "3": 25}, "a score must be a number in [0, 1], got 50"),
        ({"cat": 0.5, "dog": 0.5}, "there must be a score of each class, '3' has none"),
        ([0.5, 0.5], "must have 3 numbers, one for each class ('cat', 'dog', '3'), got 2"),
    ],
)
def test_wrong_scores_are_refused_with_the_reason(scores: Any, reason: str) -> None:
    found = decoded({"id": "a1", "scores": scores})
    assert isinstance(found, Malformed)
    assert reason in found.reason
    assert found.column == "scores"


@pytest.mark.parametrize(("label", "code"), [(" dog ", 1), (3, 2), (3.0, 2)])
def test_a_label_names_its_class(label: object, code: int) -> None:
    assert decoded({"id": "a1", "label": label}) == LabelEvent("a1", code)


@pytest.mark.parametrize("label", ["Cat", True, None, 2.5])
def test_other_labels_are_refused(label: object) -> None:
    found = decoded({"id": "a1", "label": label})
    assert isinstance(found, Malformed)
    assert found.reason.startswith("a label must be one of the classes 'cat', 'dog', '3', got ")


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.sampled_from(["cat", "dog", "3"]), each),
    max_leaves=6,
)


@settings(max_examples=15)
@given(st.dictionaries(st.sampled_from(["id", "scores", "label", "p_cat", "time"]), _JSON))
def test_nothing_ends_a_run(fields: dict[str, Any]) -> None:
    found = decoded(fields)
    assert isinstance(found, PredictionEvent | LabelEvent | LabelledEvent | Malformed)
    if isinstance(found, PredictionEvent | LabelledEvent):
        assert len(found.kept) == 4
        assert found.score == max(found.kept[1:])


@pytest.mark.parametrize(
    "text",
    [
        '{"scores": [0, 1, -0], "id": "a", "label": "dog"}',
        '{"id": "a", "scores": {"cat": 0.5, "dog": 1, "3": 0, "cat": 0}, "label": "3", "other": [1]}',
        '{"id": "a", "scores": {"c\\u0061t": 0.25, "dog": 0.75, "3": 0}, "label": "c\\u0061t"}',
        '{"id": "a", "scores": {"cat": 0.5, "dog": 0.5, "3": 9.995e-7}}',
        '{"id": "a", "scores": null, "p_cat": 1, "p_dog": 0, "p_3": 0}',
    ],
)
def test_the_quick_way_decides_as_the_slow_one(text: str) -> None:
    decoder = JsonDecoder("target", COLUMNS)
    assert repr(decoder.decode(text.encode())) == repr(decoder._decode_slowly(text.encode()))

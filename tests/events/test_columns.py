"""The user's names of columns, kept columns, and what labels stand for: in JSON and CSV alike."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from streamcal import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.blocks import FEWEST
from streamcal.events.codec import CsvDecoder, JsonDecoder, Malformed
from streamcal.events.columns import Columns
from streamcal.events.fields import OtherLabel

NAMED = Columns(
    id="request id", score="prob", time="ts", label="outcome", key="segment", keep=("country", "n")
)


def test_json_fields_by_other_names() -> None:
    decoder = JsonDecoder("target", NAMED)
    prediction = b'{"request id":"a","prob":0.5,"ts":7,"segment":"s","country":"DE","n":1.5}'
    label = b'{"request id":"a","outcome":1,"ts":9}'
    wanted = [PredictionEvent("a", 0.5, 7.0, "s", kept=("DE", 1.5)), LabelEvent("a", 1, 9.0)]
    assert [decoder.decode(prediction), decoder.decode(label)] == wanted
    lines = [prediction, label] * FEWEST
    assert list(decoder.decode_lines(b"\n".join(lines)) or ()) == wanted * FEWEST
    both = decoder.decode(b'{"prob":0.5,"outcome":0,"n":null,"zzz":3}')
    assert both == LabelledEvent(0.5, 0, kept=(None, None))
    assert decoder.unknown_fields == {"zzz": 1}
    # The usual names are those of other fields now.
    refused = decoder.decode(b'{"id":"a","score":0.5}')
    assert isinstance(refused, Malformed)
    assert "missing field" in refused.reason


def test_csv_columns_by_other_names() -> None:
    decoder = CsvDecoder(b"n,prob,request id,ts,country,score", "target", NAMED, ["prob", "country"])
    assert decoder.decode(b' 5 ,0.5,a,7,"D,E",9') == PredictionEvent("a", 0.5, 7.0, kept=("D,E", "5"))
    assert decoder.decode(b",0.5,a,7,,9") == PredictionEvent("a", 0.5, 7.0, kept=(None, None))
    assert decoder.unknown_fields == {"score": 2}


def test_a_column_with_a_role_can_be_kept_as_well() -> None:
    decoder = JsonDecoder("target", Columns(key="country", keep=("country", "label")))
    wanted = LabelledEvent(0.5, 1, "a", None, "DE", kept=("DE", "yes"))
    assert decoder.decode(b'{"id":"a","score":0.5,"label":"yes","country":"DE"}') == wanted
    assert decoder.decode_lines(b'{"id":"a","score":0.5,"country":"DE"}\n') is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": "score"}, "id and score have the same column, 'score'"),
        ({"labels": {"id": "label"}}, "id and label have the same column"),
        ({"keep": ["probability"]}, "every row of the output has a field 'probability' of its own"),
        ({"keep": ["a\nb"]}, "a column must not hold line breaks"),
        ({"positive": "NaN"}, "a label must name a class"),
    ],
)
def test_columns_that_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Columns.model_validate(given)


def test_names_for_one_input_only() -> None:
    columns = Columns(id="request", label="outcome", labels={"id": "req"}, keep=("country",))
    assert (columns.of("events").id, columns.of("labels").id, columns.of("labels").label) == (
        "request",
        "req",
        "outcome",
    )
    assert columns.required("events", labels_apart=True) == {"request", "country"}
    assert columns.required("events") == {"request", "country", "outcome"}
    assert columns.required("labels") == {"req", "outcome"}
    assert Columns().required("events") == frozenset()


@pytest.mark.parametrize("text", ["1.0", "TRUE"])
def test_positive_labels_by_name(text: str) -> None:
    assert JsonDecoder().decode(f'{{"id":"a","label":"{text}"}}'.encode()) == LabelEvent("a", 1)
    assert CsvDecoder(b"id,label").decode(f"a,{text}".encode()) == LabelEvent("a", 1)


@pytest.mark.parametrize("text", ["no", "-0"])
def test_negative_labels_by_name(text: str) -> None:
    assert JsonDecoder().decode(f'{{"id":"a","label":"{text}"}}'.encode()) == LabelEvent("a", 0)
    assert CsvDecoder(b"id,label").decode(f"a,{text}".encode()) == LabelEvent("a", 0)


@pytest.mark.parametrize(
    ("positive", "labels"),
    [
        (1, ["1", "1.0", '"1"', "true", '"yes"', '" 1 "']),
        (-1, ["-1", '"-1.0"']),
        ("Fraud", ['"fraud"', '"FRAUD"', '"Fraud "']),
    ],
)
def test_the_positive_label_as_number_or_text(positive: object, labels: list[str]) -> None:
    decoder = JsonDecoder("target", Columns.model_validate({"positive": positive}))
    for label in labels:
        assert decoder.decode(b'{"id":"a","label":%s}' % label.encode()) == LabelEvent("a", 1), label
    other = decoder.decode(b'{"id":"a","label":"other","time":3}')
    assert isinstance(other, OtherLabel)
    assert (other.label, other.event, other.id, other.time) == ("other", LabelEvent("a", 0, 3.0), "a", 3.0)


@pytest.mark.parametrize("label", ["null", '"NaN"', "[1]"])
def test_a_missing_label_is_never_the_other_class(label: str) -> None:
    for columns in (Columns(positive="yes"), Columns()):
        refused = JsonDecoder("target", columns).decode(b'{"id":"a","label":%s}' % label.encode())
        assert type(refused) is Malformed
        assert refused.label is None

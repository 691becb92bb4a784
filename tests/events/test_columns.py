"""The user's names of columns, kept columns, and what labels stand for: in JSON and CSV alike."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamcal import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.codec import CsvDecoder, JsonDecoder, Malformed
from streamcal.events.columns import Columns, did_you_mean
from streamcal.events.fields import OtherLabel
from streamcal.run.config import read_config

NAMED = Columns(
    id="request id", score="prob", time="ts", label="outcome", key="segment", keep=("country", "n")
)


def test_json_fields_by_other_names() -> None:
    decoder = JsonDecoder("target", NAMED)
    prediction = b'{"request id":"a","prob":0.5,"ts":7,"segment":"s","country":"DE","n":1.5}'
    label = b'{"request id":"a","outcome":1,"ts":9}'
    wanted = [PredictionEvent("a", 0.5, 7.0, "s", kept=("DE", 1.5)), LabelEvent("a", 1, 9.0)]
    assert [decoder.decode(prediction), decoder.decode(label)] == wanted
    assert list(decoder.decode_lines(prediction + b"\n" + prediction + b"\n") or ()) == wanted[:1] * 2
    assert decoder.decode_lines(prediction + b"\n" + label + b"\n") == wanted
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


def test_a_csv_header_without_a_column_that_was_named_says_which_it_has() -> None:
    with pytest.raises(ValueError, match=r"has no column 'country', 'prop'; it has 'id', 'prob'$"):
        CsvDecoder(b"id,prob", "target", Columns(score="prob"), ["prop", "country"])
    wide = b",".join(b"column%d" % i for i in range(300))
    with pytest.raises(ValueError, match="'column19' and 280 more"):
        CsvDecoder(wide, "target", Columns(score="prob"), ["prob"])


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(max_size=3) | st.integers(),
        "score": st.floats(-0.5, 1.5),
        "label": st.sampled_from([0, 1, True, 2, "yes", None]),
        "key": st.text(max_size=2),
        "note": st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5) | st.lists(st.none()),
    },
)  # fmt: skip


@given(FIELDS)
def test_quick_and_slow_decoding_agree_on_what_is_kept(fields: dict[str, object]) -> None:
    """An unknown field forces the slow way; the event must be the same."""
    decoder = JsonDecoder("target", Columns(keep=("note",)))
    quick, slow = (decoder.decode(msgspec.json.encode(each)) for each in (fields, {**fields, "zzz": 0}))
    assert quick == slow


def test_a_column_with_a_role_can_be_kept_as_well() -> None:
    decoder = JsonDecoder("target", Columns(key="country", keep=("country", "label")))
    wanted = LabelledEvent(0.5, 1, "a", None, "DE", kept=("DE", "yes"))
    assert decoder.decode(b'{"id":"a","score":0.5,"label":"yes","country":"DE"}') == wanted
    assert decoder.decode_lines(b'{"id":"a","score":0.5,"country":"DE"}\n') is None


@pytest.mark.parametrize("value", ['["x"]', '{"a":1}', '"' + "x" * 4097 + '"'])
def test_what_cannot_be_kept_is_a_reject(value: str) -> None:
    refused = JsonDecoder("target", Columns(keep=("note",))).decode(
        f'{{"id":"a","score":0.5,"note":{value}}}'.encode()
    )
    assert isinstance(refused, Malformed)
    assert (
        "a field to keep, or of segments, must be a number, true, false, null or a text of at most 4096"
        in refused.reason
    )
    assert "'note'" in refused.reason
    assert len(refused.reason) < 400


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": "score"}, "id and score have the same column, 'score'"),
        ({"key": "domain"}, "key and domain have the same column"),
        ({"labels": {"id": "label"}}, "id and label have the same column"),
        ({"keep": ["probability"]}, "every row of the output has a field 'probability' of its own"),
        ({"keep": ["a", "a"]}, "'a' is given twice"),
        ({"keep": ["a\nb"]}, "a column must not hold line breaks"),
        ({"keep": [f"c{i}" for i in range(33)]}, "at most 32 items"),
        ({"positive": ""}, "a label must name a class"),
        ({"positive": "NaN"}, "a label must name a class"),
        ({"score": ""}, "at least 1 character"),
        ({"labels": {"idd": "x"}}, "Input should be 'id'"),
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


def test_the_table_columns_of_a_configuration(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "run.toml"
    path.write_text(
        '[columns]\nid = "request_id"\npositive = 2\nkeep = ["country", "amount"]\n'
        '[columns.labels]\nid = "req"\n'
    )
    columns = read_config(path).columns
    assert columns == Columns(id="request_id", positive=2, keep=("country", "amount"), labels={"id": "req"})
    path.write_text('[columns]\nidd = "x"\n')
    with pytest.raises(ValueError, match=r"\[columns\] idd"):
        read_config(path)


@pytest.mark.parametrize("text", ["1", "1.0", "yes", "TRUE", "True", "Yes"])
def test_positive_labels_by_name(text: str) -> None:
    assert JsonDecoder().decode(f'{{"id":"a","label":"{text}"}}'.encode()) == LabelEvent("a", 1)
    assert CsvDecoder(b"id,label").decode(f"a,{text}".encode()) == LabelEvent("a", 1)


@pytest.mark.parametrize("text", ["0", "0.0", "no", "FALSE", "No", "-0"])
def test_negative_labels_by_name(text: str) -> None:
    assert JsonDecoder().decode(f'{{"id":"a","label":"{text}"}}'.encode()) == LabelEvent("a", 0)
    assert CsvDecoder(b"id,label").decode(f"a,{text}".encode()) == LabelEvent("a", 0)


@pytest.mark.parametrize(
    ("positive", "labels"),
    [
        (1, ["1", "1.0", '"1"', "true", '"yes"', '" 1 "']),
        ("1", ["1", "1.0", '"1"']),
        (2.0, ["2", '"2"', "2.0"]),
        (-1, ["-1", '"-1.0"']),
        ("Fraud", ['"fraud"', '"FRAUD"', '"Fraud "']),
        (0, ["0", "false", '"no"']),
    ],
)
def test_the_positive_label_as_number_or_text(positive: object, labels: list[str]) -> None:
    decoder = JsonDecoder("target", Columns.model_validate({"positive": positive}))
    for label in labels:
        assert decoder.decode(b'{"id":"a","label":%s}' % label.encode()) == LabelEvent("a", 1), label
    other = decoder.decode(b'{"id":"a","label":"other","time":3}')
    assert isinstance(other, OtherLabel)
    assert (other.label, other.event, other.id, other.time) == ("other", LabelEvent("a", 0, 3.0), "a", 3.0)


@pytest.mark.parametrize(
    "label", ["null", '""', '"NaN"', '"n/a"', '"None"', "[1]", "{}", '"' + "x" * 600 + '"']
)
def test_a_missing_label_is_never_the_other_class(label: str) -> None:
    for columns in (Columns(positive="yes"), Columns()):
        refused = JsonDecoder("target", columns).decode(b'{"id":"a","label":%s}' % label.encode())
        assert type(refused) is Malformed
        assert refused.label is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("timestamp", "time"),
        ("probability", "score"),
        ("target", "label"),
        ("y", "label"),
        ("Lable", "label"),
        ("scores", "score"),
        ("ID", "id"),
        ("request-id", "id"),
        ("event time", "time"),
        ("amount", None),
        ("country", None),
        ("x" * 100_000, None),
        ("", None),
    ],
)
def test_what_a_field_may_be_meant_for(name: str, meant: str | None) -> None:
    assert did_you_mean(name) == meant

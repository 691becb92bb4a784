"""CSV and JSON as other programs write them: the events of the plain file, or a refusal of one place."""

from __future__ import annotations

import gzip
import json
import logging
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from streamcal_connectors.files import FileConnector

from streamcal.events.codec import Malformed
from streamcal.events.columns import Columns
from tests.command_line import read_lines, streamcal
from tests.connectors.sources import opened, read, read_all

BEGIN = 1767225600  # 1 January 2026
ROWS = [(f"é{i}", i / 4096, i % 2, BEGIN + 3600 * i) for i in range(3000)]
NAMES = ("id", "score", "label", "time")


def day(form: str) -> Callable[[int], str]:
    return lambda time: f"{datetime.fromtimestamp(time, UTC):{form}}"


def csv(
    separator: str = ",",
    decimal: str = ".",
    time: Callable[[int], object] = int,
    before: str = "",
    end: str = "\n",
) -> str:
    rows = [separator.join(NAMES)] + [
        separator.join((id_, f"{score!r}".replace(".", decimal), str(label), str(time(moment))))
        for id_, score, label, moment in ROWS
    ]
    return before + end.join([*rows, ""])


OBJECTS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
GERMAN = csv(";", ",", day("%d.%m.%Y %H:%M"), end="\r\n")
INDEXED = "\n".join(
    ["," + ",".join(NAMES)] + [f"{i}," + ",".join(map(str, row)) for i, row in enumerate(ROWS)] + [""]
)
BROKEN = "id,note,score,label,time\n" + "".join(
    f'"{id_}","two\nlines, ""{id_}"", \nor three",{score},{label},{time}\n\n'
    for id_, score, label, time in ROWS
)


class Case(NamedTuple):
    """A file, the options that it needs, and parts of the notes that are logged."""

    name: str
    text: str | bytes
    options: Mapping[str, Any] = MappingProxyType({})
    notes: tuple[str, ...] = ()


DATED = "'01.01.2026 00:00' in column 'time' is read as 2026-01-01T00:00"
FIRST = "'01/01/2026 00:00' as 2026-01-01T00:00"
SLASHED = "'2026/01/01 00:00:00' in column 'time' is read as 2026-01-01T00:00:00"
COMMAS, SEMICOLONS = "'0,0' in column 'score' is read as 0.0", "separated by ';'"
CASES = {
    "plain": Case("e.csv", csv()),
    "mark": Case("e.csv", b"\xef\xbb\xbf" + csv().encode()),
    "semicolons": Case("e.csv", csv(";"), notes=(SEMICOLONS,)),
    "tabs": Case("e.tsv", csv("\t"), notes=(r"separated by '\t'",)),
    "named": Case("e.csv", csv("|"), {"separator": "|"}),
    "sep": Case("e.csv", csv(";", before="sep=;\r\n", end="\r\n")),
    "decimals": Case("e.csv", csv(";", ","), notes=(SEMICOLONS, COMMAS)),
    "german": Case("e.csv", GERMAN, notes=(SEMICOLONS, COMMAS, DATED)),
    "german, UTF-16": Case("e.csv", GERMAN.encode("utf-16"), notes=("UTF-16", SEMICOLONS, COMMAS, DATED)),
    "Windows": Case("e.csv", GERMAN.encode("cp1252"), {"encoding": "cp1252"}, (SEMICOLONS, COMMAS, DATED)),
    "big end first": Case("e.csv", b"\xfe\xff" + csv().encode("utf-16-be"), notes=("UTF-16",)),
    "slashes": Case(
        "e.csv", csv(time=day("%d/%m/%Y %H:%M")), notes=(f"order dmy: {FIRST}, '13/01/2026 00:00' as",)
    ),
    "American": Case("e.csv", csv(time=day("%m-%d-%Y %H:%M")), notes=("order mdy: '01-01-2026 00:00' as",)),
    "named order": Case("e.csv", csv(time=day("%d/%m/%Y %H:%M")), {"date_format": "dmy"}),
    "year first": Case("e.csv", csv(time=day("%Y/%m/%d %H:%M:%S")), notes=(SLASHED,)),
    "index": Case("e.csv", INDEXED),
    "breaks": Case("e.csv", BROKEN),
    "lines": Case("e.json", "\n".join(map(json.dumps, OBJECTS)) + "\n"),
}


def written(folder: Path, case: Case, *, packed: bool = False) -> Path:
    path = folder / (case.name + ".gz" * packed)
    text = case.text.encode() if isinstance(case.text, str) else case.text
    path.write_bytes(gzip.compress(text, mtime=0) if packed else text)
    return path


def shown(events: list[Any]) -> list[tuple[Any, ...]]:
    return [(e.id, e.score, e.label, e.time) for e in events]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_events_are_those_of_the_plain_file_from_any_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    case = CASES[name]
    path = written(tmp_path, case, packed=list(CASES).index(name) % 3 == 0)
    with caplog.at_level(logging.INFO, "streamcal_connectors"):
        found = read_all(path, 500, form=case.options)
    assert shown(found.events) == ROWS
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(case.notes)
    for note, text in zip(case.notes, said, strict=True):
        assert note in text
    for index in range(0, len(ROWS), 701):
        with opened(path, found.position(index), case.options) as source:
            assert shown(read(source).events) == ROWS[index + 1 :]


DAYS = "id,score,time\na,0.5,\nb,0.5,1/2/2026 9:00\nc,0.5,3/2/2026 9:00\n"
TELLS = "date_format = 'dmy' or 'mdy' of .file. or .stdio. tells"


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        ("id;score\na;0.5\n", {"separator": ","}, "line 1: .* must name score or label"),
        ("sep=:\nid:score\n", {}, "line 2: Invalid enum value ':'"),
        ('id,score,"no\nte"\n', {}, "line 1: not a CSV header"),
        (DAYS, {}, rf"first row: .* got '1/2/2026 9:00' .{TELLS}"),
    ],
)
def test_a_header_or_date_that_cannot_be_read_is_refused(
    tmp_path: Path, text: str, form: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read_all(written(tmp_path, Case("e.csv", text)), form=form)


QUOTES = "a text in quotes goes on over line breaks"
LONG = ',"' + ("x" * 999 + "\n") * 120 + '"'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "ids", "damage"),
    [
        ("e.csv", 'id,score\na,0.5\nb,"0.5\nc,0.5\n', ["a"], f"beyond line 2: in line 3, {QUOTES}, but"),
        ("e.csv", 'id,score\na,0.5\nb,"0.5\nb,0.5\nc,"0.5\nd,0.5\n', ["a"], f"line 3, {QUOTES} up to line 5"),
        ("e.csv", "id,score\na,0.5\na" + LONG * 10, ["a"], "than 1,048,576"),
        ("e.json", " [\n {", [], "an array in JSON: write an object a line"),
    ]
)  # fmt: skip
def test_what_has_no_end_ends_the_reading_before_it(
    tmp_path: Path, name: str, text: str, ids: list[str], damage: str
) -> None:
    path = written(tmp_path, Case(name, text))
    for final in (False, True) if len(text) < 1000 else (False,):
        with opened(path, final=final) as source:
            assert read(source, 10).ids == ids
            assert re.search(damage, str(source.damage))
    if name == "e.csv":
        path.write_bytes(b"id,score\na,0.5\nb,0.75\n")
        assert read_all(path).ids == ["a", "b"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            "a;0,5;1;01-02-2026",
            "got '01-02-2026' (date_format = 'dmy' or 'mdy' of [file] or [stdio] tells), in",
        ),
        ("a;0,5;1;31/01/2026 9:00", "got '31/01/2026 9:00' (date_format = 'dmy' of [file]"),
        ("a;0,5;1;01.31.2026", "an ISO 8601 date and time, got '01.31.2026'"),
        ("a;0,5;1;01.01.26", "an ISO 8601 date and time, got '01.01.26'"),
        ("a;1,000,5;1;1", "a score must be a number in [0, 1], got '1,000,5'"),
        ("a;1,000;1;1,5", None),
        ("a;0,5;2,5;1", "a label must equal 0 or 1, got 2.5"),
    ],
)
def test_what_may_mean_two_things_is_rejected_with_what_to_write(
    tmp_path: Path, row: str, reason: str | None
) -> None:
    path = written(tmp_path, Case("e.csv", f"id;score;label;time\nb;0,5;1;1\n{row}\n"))
    event = read_all(path).events[1]
    assert (event.reason if isinstance(event, Malformed) else None) == reason or str(reason) in event.reason


def test_a_comma_in_a_weight_needs_an_option(tmp_path: Path) -> None:
    path = written(tmp_path, Case("e.csv", "id;score;w\na;0,5;1,234\nb;0,5;1,25\n"))
    columns = Columns(weight="w")
    first, second = read_all(path, columns=columns).events
    assert "got '1,234' (decimal = ',' of [file] or [stdio]: 1.234)" in first.reason
    assert second.weight == 1.25
    events = read_all(path, form={"decimal": ","}, columns=columns).events
    assert [event.weight for event in events] == [1.234, 1.25]
    assert "got '0,5'" in read_all(path, form={"decimal": "."}, columns=columns).events[0].reason


def test_text_of_another_encoding_is_rejected_with_the_option(tmp_path: Path) -> None:
    (reason,) = read_all(written(tmp_path, Case("e.csv", "id,score\né,0.5\n".encode("cp1252")))).ids
    assert "at byte 0; perhaps encoding = 'cp1252' of [file] or [stdio]" in str(reason)


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_the_index_of_pandas_is_no_unknown_field(tmp_path: Path, name: str) -> None:
    with opened(written(tmp_path, Case("e.csv", f"{name},id,score,more\n0,a,0.5,1\n"))) as source:
        assert read(source).ids == ["a"]
        assert source.unknown_fields == {"more": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["german, UTF-16", pytest.param("breaks", marks=pytest.mark.nightly)],
)
def test_a_run_stopped_within_any_of_them_goes_on_in_the_same_form(tmp_path: Path, name: str) -> None:
    path, answers = written(tmp_path, CASES[name]), tmp_path / "o.jsonl"
    whole = path.read_bytes()
    for size in (len(whole) // 3, len(whole)):
        path.write_bytes(whole[:size])
        done = streamcal("run", "--events", path, "--store", tmp_path / "s", "--output", answers)
        assert done.returncode == (QUOTES in done.stderr), done.stderr
    assert [row["score"] for row in read_lines(answers)] == [score for _, score, *_ in ROWS]


def test_an_option_that_does_not_exist_is_refused() -> None:
    message = "unknown field `seperator`; they are encoding, separator, decimal, date_format"
    with pytest.raises(ValueError, match=message):
        FileConnector().set_up({"seperator": ";"}, lambda: False)


def test_what_grows_is_followed(tmp_path: Path) -> None:
    path, text = tmp_path / "e.csv", GERMAN.encode("utf-16")
    half = len(text) // 4 * 2 + 1  # within a character
    path.write_bytes(text[:half])
    with opened(path, follow=True) as source:
        events = read(source).events
        assert 1000 < len(events) < len(ROWS)
        with path.open("ab") as file:
            file.write(text[half:])
        while len(events) < len(ROWS):
            events += read(source).events
    assert shown(events) == ROWS


def test_all_before_a_cut_is_read_though_the_first_rows_were_looked_at(tmp_path: Path) -> None:
    path = written(tmp_path, CASES["slashes"], packed=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    found = read_all(path, 1)
    assert 2000 < len(found.places) < 3000
    path.write_bytes(whole)
    with opened(path, found.position(-1)) as source:
        assert shown(found.events + read(source).events) == ROWS


def test_origins_are_those_of_rows_and_elements(tmp_path: Path) -> None:
    text = 'id,x,score\n\na,"1\n2",0.5\n\n\nb,"3\n4\n",7\nc,,9\n'
    found = read_all(written(tmp_path, Case("e.csv", text)))
    assert [line for _, line in found.lines] == [3, 7, 10]
    assert found.places[0][0].origin(1).raw == b'b,"3\n4\n",7'

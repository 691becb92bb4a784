"""Reports of stores, of files and of runs, and what they look like in a browser."""

from __future__ import annotations

import json
import re
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from streamcal_connectors.sqlite.store import SqliteStore

from streamcal.monitor.build import build_status
from streamcal.monitor.report import Report, as_html, make_report
from streamcal.monitor.run_history import stored_history
from streamcal.monitor.shown import Shown
from streamcal.monitor.status import Remark
from streamcal.run.stored import stored_pipeline
from tests.command_line import in_process, synthetic
from tests.monitor.hostile import KEYS, hostile_store

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """The elements of a page, and the record that its script lays out."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open, f"never closed: {self._open}"
        (record,) = re.findall(r'id="record">(.*?)</script>', text)
        self.shown = msgspec.convert(json.loads(record)["shown"], Shown)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def rows(self, section: str) -> list[list[str]]:
        (found,) = (each for each in self.shown.sections if each.id == section)
        return [row for table in found.tables for row in table.rows]


def closing_table(done: Any) -> dict[str, str]:
    rows = (line.rsplit("  ", 1) for line in done.stdout.splitlines())
    return {name.strip(): value.strip() for name, value in (row for row in rows if len(row) == 2)}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_store(tmp_path_factory.mktemp("hostile"))


def report_of(path: Path) -> Report:
    with closing(SqliteStore(path, read_only=True)) as store:
        status = build_status(stored_pipeline(store), None, history=stored_history(store))
    status.remarks = [Remark("unfinished", {}, "<b>careful</b>")]
    return make_report(status, [str(path)])


@pytest.mark.slow
def test_its_figures_are_those_of_the_closing_table_however_it_is_made(tmp_path: Path) -> None:
    source, events, labels = synthetic(tmp_path, 1200)
    inputs = ["--calibration", source, "--events", events, "--labels", labels]
    (tmp_path / "config.toml").write_text("[join]\nlabel_ttl = 2000\n")
    inputs += ["--config", tmp_path / "config.toml"]
    run, store = tmp_path / "run.html", tmp_path / "s.db"
    outputs = ["--output", tmp_path / "o.jsonl", "--store", store, "--report", run]
    done = in_process("run", *inputs, *outputs, status=0)
    wanted = closing_table(done)
    assert wanted["joined"] == "1,200"

    def figures(path: Path) -> dict[str, str]:
        text = path.read_text()
        assert len(text) < 2_000_000
        return {name.strip(): value for name, value in Page(text).rows("table")}

    assert figures(run) == wanted
    stored, filed = tmp_path / "stored.html", tmp_path / "filed.html"
    in_process("report", store, "-o", stored, status=0)
    in_process("run", *inputs, "--output", "/dev/null", "--report", filed, status=0)
    assert figures(filed) == wanted
    assert wanted.pop("unknown fields ignored") == "0"
    assert figures(stored) == wanted
    by_title = {each.title: each for each in Page(stored.read_text()).shown.views[0].cards}
    for name in ("Brier score", "calibration error (ECE)"):
        assert by_title[name].value == f"{float(wanted[f'{name} after']):.4f}"
        assert by_title[name].beside == f"before {float(wanted[f'{name} before']):.4f}"

    done = in_process("report", store, "--json")
    found = msgspec.json.decode(done.stdout, type=Report, strict=True)
    assert {each.name.strip(): each.value for each in found.figures} == wanted
    view = found.status.views[0]
    assert f"{view.after.figures.brier:.5f}" == wanted["Brier score after"]
    assert view.windows.labels == [256, 512, 768, 1024]
    assert found.status.delays[-1].share == 1.0
    for _ in range(2):  # it replaces its own
        in_process("report", store, "--json", "-o", tmp_path / "r.json", status=0)


def test_the_schema_of_the_json_is_the_one_in_the_docs() -> None:
    kept = (ROOT / "docs" / "report.schema.json").read_text()
    assert json.loads(kept) == msgspec.json.schema(Report), "make schema"


@pytest.mark.slow
def test_nothing_of_the_users_becomes_markup(hostile: Path) -> None:
    text = as_html(report_of(hostile))
    page = Page(text)
    assert len(text) < 2_000_000
    assert not {name for name, _ in page.elements} & {"iframe", "object", "u", "b", "i"}
    scripts = [attributes for name, attributes in page.elements if name == "script"]
    assert [sorted(each.items()) for each in scripts] == [
        [("id", "record"), ("type", "application/json")],
        [("type", "module")],
    ]
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on")]
    links = [each.get("href") or each.get("src") or "#" for _, each in page.elements]
    assert not [link for link in links if not link.startswith(("#", "data:"))]
    assert "\u202e" not in text
    assert [row[0] for row in page.rows("keys")] == [*KEYS]
    assert "alert(4)" not in text  # the text of a reject may be personal
    assert page.shown.remarks == ["<b>careful</b>"]


@pytest.mark.slow
def test_a_store_that_a_run_is_writing_can_be_reported(hostile: Path, tmp_path: Path) -> None:
    with closing(SqliteStore(hostile)):  # as a run has it: locked
        done = in_process("report", hostile, "-o", tmp_path / "r.html", status=0)
    assert done.stdout == f"report: {tmp_path / 'r.html'}\n"


@pytest.mark.slow
def test_in_a_browser_it_asks_for_nothing_and_says_nothing(
    hostile: Path, tmp_path: Path, chromium: Any
) -> None:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import expect

    path = tmp_path / "report.html"
    made = report_of(hostile)
    path.write_text(as_html(made))
    every, contrast = (
        {"resultTypes": ["violations"]},
        {"runOnly": ["color-contrast"]},
    )  # all that another scheme changes
    for width, scheme, options in ((390, "light", every), (1600, "dark", contrast)):
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            offline=True,
        )
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("dialog", lambda dialog, said=said: said.append(dialog.message))
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto(path.as_uri())
        assert asked == [path.as_uri()]
        assert said == []
        page.wait_for_selector("figure canvas")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("body *:is(u, b, iframe, object)").count() == 0
        page.select_option("#key", label=KEYS[1])
        expect(page.locator("#verdict")).to_contain_text(KEYS[1])
        table = page.locator("figure#reliability details")
        table.locator("summary").click()
        bins = made.status.views[2]
        rows = len(bins.before.bins.labels) + len(bins.after.bins.labels)
        expect(table.locator("tbody tr")).to_have_count(rows)  # filled a moment after it opens
        found = Axe().run(page, options=options).response["violations"]
        assert not [each["id"] for each in found if each["impact"] in ("serious", "critical")], found
        assert (asked, said) == ([path.as_uri()], [])
        context.close()

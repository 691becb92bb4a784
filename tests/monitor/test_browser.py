"""The page in a browser, with a real run: the flights at 5,000 events a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from streamcal.monitor.health import Health
from streamcal.monitor.latest_status import LatestStatus
from streamcal.monitor.server import PageServer
from streamcal.run.pipeline import Pipeline
from tests.monitor.flights import LiveFlights
from tests.monitor.streams import labelled, processed

pytestmark = pytest.mark.slow

WIDE: Final = {"width": 1600, "height": 1000}
NARROW: Final = {"width": 390, "height": 844}
SCHEMES: Final = ("light", "dark")

DRAWN = """() => Object.fromEntries([...document.querySelectorAll("figure")].map((figure) => {
    const { plot } = figure.querySelector(".chart");
    if (!plot) return [figure.id, []];
    const canvas = figure.querySelector("canvas");
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const inked = (colour) => {
        const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
        let count = 0;
        for (let at = 0; at < pixels.length; at += 4)
            count += pixels[at + 3] > 200 && Math.abs(pixels[at] - r) + Math.abs(pixels[at + 1] - g)
                + Math.abs(pixels[at + 2] - b) < 12;
        return count;
    };
    return [figure.id, plot.series.slice(1).map((series, number) => ({
        label: series.label,
        values: plot.data[number + 1].filter((value) => value != null).length,
        pixels: inked(plot.series[number + 1].stroke()),
    }))];
}))"""

SENTENCES = """() => {
    window.sentences = new Set();
    new EventSource("page/events").onmessage = ({ data }) => {
        sentences.add(JSON.parse(data).status.views[0].verdict.sentence);
    };
}"""  # of the verdict, in the records of the run


class Viewer:
    """A page in the browser, with all that it asked for and complained of."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()


@contextmanager
def viewing(chromium: Any, url: str, **options: Any) -> Iterator[Viewer]:
    context = chromium.new_context(**({"viewport": WIDE} | options))
    try:
        viewer = Viewer(context.new_page())
        viewer.page.goto(url)
        yield viewer
    finally:
        context.close()


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFlights]:
    with LiveFlights(tmp_path_factory.mktemp("flights"), at_once=16_000) as run:
        yield run


def wait_for_charts(page: Any) -> None:
    """Wait until each chart has data; nothing can be claimed of the flights, as they drift."""
    page.wait_for_function(
        "() => [...document.querySelectorAll('.chart')].length"
        " && [...document.querySelectorAll('figure:not(#certificate) .chart')].every((each) => each.plot)",
        timeout=60_000,
    )


def test_every_chart_is_drawn_with_data_and_nothing_is_asked_of_another_host(
    chromium: Any, flights: LiveFlights
) -> None:
    with viewing(chromium, flights.url) as viewer:
        page = viewer.page
        page.evaluate(SENTENCES)
        wait_for_charts(page)
        drawn = page.evaluate(DRAWN)
        assert list(drawn) == [
            "spans", "reliability", "ece", "brier", "gain", "bands", "certificate", "mixture",
        ]  # fmt: skip
        del drawn["certificate"]  # of the first labels, if any: soon they are refuted to have one law
        for name, series in drawn.items():
            assert len(series) >= 2, name
            for each in series:
                assert each["values"] >= (2 if name == "bands" else 5), (name, each)
                assert each["pixels"] >= 20 or name == "mixture", (name, each)
        assert sum(each["pixels"] > 100 for each in drawn["mixture"]) >= 3
        over_time = drawn.keys() - {"reliability", "bands"}
        for name in over_time:  # also where the first map has none
            first = page.evaluate(f"() => document.querySelector('#{name} .chart').plot.data[0][0]")
            assert 1.36e9 < first < 1.38e9, name
        before = page.evaluate("document.querySelector('#brier .chart').plot.data[0].at(-1)")
        page.wait_for_function(
            f"() => document.querySelector('#brier .chart').plot.data[0].at(-1) > {before}", timeout=60_000
        )
        assert viewer.text("#state") == "Live"
        page.wait_for_function("() => sentences.has(document.getElementById('verdict').textContent)")
        assert "mean forecast" in viewer.text("#evidence").lower()
        assert "saved against the raw score, a label" in viewer.text("#decisions")
        assert viewer.said == []
        assert all(url.startswith(flights.url) for url in viewer.asked), viewer.asked
        assert not any("rejects" in url for url in viewer.asked)


def test_it_can_be_read_by_all(chromium: Any, flights: LiveFlights) -> None:
    """By axe-core: contrast of at least 4.5, names, landmarks. And nothing is cut off at the right."""
    from axe_playwright_python.sync_playwright import Axe

    with viewing(chromium, flights.url) as viewer:
        page = viewer.page
        wait_for_charts(page)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
        page.wait_for_selector("#raw-list code")
        every, contrast = (
            {"resultTypes": ["violations"]},
            {"runOnly": ["color-contrast"]},
        )  # all that another scheme changes
        for size, scheme, options in ((WIDE, "light", every), (NARROW, "dark", contrast)):
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            assert (sum(map(int, ground[4:-1].split(","))) > 384) == (scheme == "light")
            found = Axe().run(page, options=options).response
            assert [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]] == []
            assert "color-contrast" in [each["id"] for each in found["passes"]]
            assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
        assert viewer.said == []


def test_it_is_used_with_the_keyboard_alone(chromium: Any, flights: LiveFlights) -> None:
    with viewing(chromium, flights.url) as viewer:
        page = viewer.page
        wait_for_charts(page)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('#ece .chart')"):
                break
        page.keyboard.press("ArrowRight")
        assert "UTC" in viewer.text("#ece-legend")
        first = page.evaluate("document.querySelector('#ece .chart').plot.cursor.idx")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.querySelector('#ece .chart').plot.cursor.idx") == first + 1
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector("#ece tbody tr")
        assert page.locator("#ece tbody tr").count() >= 5


def test_raw_rejects_are_text_and_are_asked_for_only_to_be_shown(chromium: Any, flights: LiveFlights) -> None:
    with viewing(chromium, flights.url) as viewer:
        page = viewer.page
        wait_for_charts(page)
        assert "a label must equal 0 or 1" in viewer.text("#rejects")
        assert "onerror" not in page.content()
        page.locator("#raw summary").click()
        page.wait_for_selector("#raw-list code")
        assert '<script>alert("raw")</script>' in viewer.text("#raw-list")
        assert "<img src=x onerror=alert(1)>" in viewer.text("#raw-list")
        assert page.locator("#raw-list img, #raw-list script").count() == 0
        assert viewer.said == []


def test_it_goes_on_after_a_restart_and_shows_what_was_last_after_the_end(chromium: Any) -> None:
    pipeline = Pipeline()
    processed(pipeline, labelled(300))
    first = PageServer("127.0.0.1", 0)
    first.show(LatestStatus(pipeline, {}), Health([], time.monotonic))
    with viewing(chromium, first.url) as viewer:
        page = viewer.page
        page.wait_for_selector("#state[data-state=running]")
        first.close()
        page.wait_for_selector("#state[data-state=lost]")
        assert "trying again" in viewer.text("#announced")
        board = LatestStatus(pipeline, {})
        second = PageServer("127.0.0.1", first.port)
        second.show(board, Health([], time.monotonic))
        page.wait_for_selector("#state[data-state=running]")
        board.take(processed(pipeline, labelled(10, "more")))
        board.end()
        page.wait_for_selector("#state[data-state=ended]")
        second.close()
        page.wait_for_timeout(300)
        assert viewer.text("#state").startswith("Ended at")
        assert "310" in viewer.text("#tiles")

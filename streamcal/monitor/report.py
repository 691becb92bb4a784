"""The report: the page with the figures of a run in it, one HTML file that asks for nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from typing import Final, Literal

import msgspec

from streamcal.base.times import show_time
from streamcal.monitor.rows import closing_rows
from streamcal.monitor.shown import make_shown
from streamcal.monitor.status import Status
from streamcal.run.connectors import public_url

MARK: Final = "streamcal report"
"""The content of the meta element ``generator``, with the version behind it: by it, a report is known."""

_STATIC: Final = files("streamcal.monitor") / "static"
_SCRIPTS: Final = ("uPlot.LICENSE", "uPlot.iife.min.js", "words.js", "charts.js", "page.js")
_LIVE: Final = re.compile(r"\s*<!-- live -->.*?<!-- /live -->", re.DOTALL)  # what a report leaves out


class Figure(msgspec.Struct):
    """A row of the table at the end of a run."""

    name: str
    value: str


class Report(msgspec.Struct):
    """All that a report says: the JSON of ``streamcal report --json`` (docs/report.schema.json)."""

    format: Literal[1]
    streamcal: str
    """The version that made it."""
    made: str
    """When, as ISO 8601."""
    made_from: list[str]
    """Names of the store, or of the inputs of the run."""
    figures: list[Figure]
    """The table at the end of a run."""
    status: Status
    """Status of the run."""


def make_report(status: Status, made_from: Iterable[str]) -> Report:
    """Return the report of a run.

    Parameters
    ----------
    status
        of the run, with its views.
    made_from
        names of the store or of the inputs; of URLs, secrets are left out.
    """
    return Report(
        1,
        version("streamcal-engine"),
        datetime.now(UTC).isoformat(timespec="seconds"),
        [public_url(name) for name in made_from],
        [Figure(*row) for row in closing_rows(status)],
        status,
    )


def as_html(report: Report) -> str:
    """Return the page as one file; without JavaScript, it has the verdict and the closing table."""
    licence, *modules = (_read(name) for name in _SCRIPTS)
    script = re.sub(
        r"^(import .*\n|export )", "", f"/*!\n{licence}*/\n" + "\n".join(modules), flags=re.MULTILINE
    )
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashed}'; img-src data:"
    icon = f"data:image/svg+xml;base64,{base64.b64encode(_read('icon.svg').encode()).decode()}"
    plain = "\n".join(f"{name}: {value}" for name, value in map(msgspec.structs.astuple, report.figures))
    start, head, main, below, end = _LIVE.split(_read("index.html"))
    return f"""{start}<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="{MARK} {report.streamcal}">
<link rel="icon" href="data:,">
<title>Calibration report</title>
<style>{_read("uPlot.min.css")}{_read("page.css")}</style>{head.replace("page/icon.svg", icon)}
<noscript><pre>{_text(report.status.verdict.sentence)}\n\n{_text(plain)}</pre></noscript>{main}{below}
<script type="application/json" id="record">{_record(report)}</script>
<script type="module">{script}</script>{end}"""


def _read(name: str) -> str:
    return (_STATIC / name).read_text("utf-8")


def _text(value: str) -> str:
    """Return text for a page; a character that would turn the text around it is shown as its escape."""
    return html.escape(
        "".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in value)
    )


def _record(report: Report) -> str:
    """Return what the script shows, as JSON that cannot end the element it stands in."""
    status = report.status
    clock = (
        "" if status.clock is None else f" Event time up to {show_time(status.clock, '%Y-%m-%d %H:%M')} UTC."
    )
    made = f"{datetime.fromisoformat(report.made):%d %b %Y, %H:%M %Z}"
    record = {
        "state": "report",
        "words": f"Of {', '.join(report.made_from)}.{clock} Made {made} by streamcal {report.streamcal}.",
        "status": {"keys": status.keys, "views": status.views, "rejects": []},
        "shown": make_shown(status),
    }
    found = json.loads(msgspec.json.encode(record), parse_float=lambda text: float(f"{float(text):.10g}"))
    return json.dumps(found, separators=(",", ":")).replace("<", "\\u003c")

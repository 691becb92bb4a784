"""The report as one HTML file, which asks for nothing but itself.

Its text and its tables are written here. The charts are those of the live page: their script is in the file,
with the figures they draw.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.resources import files
from itertools import islice
from string import Template
from typing import Any, Final

import msgspec

from streamcal.events.codes import TITLES
from streamcal.monitor.status import GroupColumns, RecordedAlarm, Served, View
from streamcal.monitor.summary import delay_rows, held_rows, points
from streamcal.quality.figures import RATED_KEYS
from streamcal.report.markup import Markup, data_table, tag
from streamcal.report.record import Report
from streamcal.run.config import RunConfig
from streamcal.times import show_duration, show_time

__all__ = ["MARK", "as_html"]

MARK: Final = "streamcal report"
"""The content of the meta element ``generator``, with the version behind it: by it, a report is known."""

_STATIC: Final = files("streamcal") / "page" / "static"
_SCRIPTS: Final = ("uPlot.LICENSE", "uPlot.iife.min.js", "words.js", "charts.js", "report.js")
_SHOWN_GROUPS: Final = 50
_CARDS: Final = {"brier": "Brier score", "ece": "Calibration error (ECE)"}


def as_html(report: Report) -> str:
    """Return the page."""
    own = files("streamcal.report")
    script = _script()
    parts = [(id_, title, part) for id_, title, part in _sections(report) if part is not None]
    return Template((own / "report.html").read_text("utf-8")).substitute(
        hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        mark=MARK,
        version=report.streamcal,
        style=(_STATIC / "uPlot.min.css").read_text("utf-8") + (own / "style.css").read_text("utf-8"),
        header=_header(report),
        summary=_summary(report),
        links="".join(tag("li", tag("a", title, href=f"#{id_}")) for id_, title, _ in parts),
        sections="\n".join(
            tag("section", tag("h2", title, id=f"{id_}-title"), part, id=id_, aria_labelledby=f"{id_}-title")
            for id_, title, part in parts
        ),
        record=_record(report.status.views),
        script=script,
    )


def _script() -> str:
    """Return the script of the charts: the modules of the live page as one."""
    licence, *modules = ((_STATIC / name).read_text("utf-8") for name in _SCRIPTS)
    joined = re.sub(r"^(import .*\n|export )", "", "\n".join(modules), flags=re.MULTILINE)
    return f"/*!\n{licence}*/\n{joined}"


def _record(views: list[View]) -> str:
    """Return the figures that the charts draw, as JSON that cannot end the element it stands in."""
    found = json.loads(msgspec.json.encode(views), parse_float=lambda text: float(f"{float(text):.10g}"))
    return json.dumps(found, separators=(",", ":")).replace("<", "\\u003c")


def _charts(number: int, *, first: bool) -> Markup:
    """Return the place of the first charts of a view, or of the others; the script fills it."""
    return tag(
        "div",
        tag("noscript", tag("p", "The charts need JavaScript.")),
        class_="figures",
        data_view=number,
        data_first=str(first).lower(),
    )


def _sections(report: Report) -> Iterator[tuple[str, str, Markup | None]]:
    """Return the parts: an id, a title, the content; None where there is nothing to say."""
    status = report.status
    everything, *by_key = status.views
    yield "overview", "Over time, and reliability", _charts(0, first=True) if everything.labels else None
    yield "alarms", "Alarms and remarks", _alarms(report)
    yield "charts", "More charts", _charts(0, first=False) if everything.labels else None
    yield "certified", "What is certified", _certified([everything, *by_key])
    yield "labels", "Labels and predictions", _labels(report)
    yield "rejects", "Rejected events", _rejects(report)
    yield "segments", "By segment, class and key", _by_group(status.groups)
    yield "keys", "By key", _by_key(by_key, status.keys)
    yield "figures", "All figures", _all_figures(report)
    yield "options", "Options", _options(status.options)


def _header(report: Report) -> Markup:
    sources = [each for name in report.made_from for each in (", ", tag("bdi", name))][1:]
    times = [time for time in report.status.views[0].windows.time if time is not None]
    span, made = "", datetime.fromisoformat(report.made)
    if times and report.status.clock is not None:
        span = f" Event time up to {show_time(report.status.clock, '%Y-%m-%d %H:%M')} UTC."
    return tag(
        "header",
        tag("h1", "Calibration report"),
        tag("p", "Of ", *sources, f".{span}"),
        tag("p", f"Made {made:%d %b %Y, %H:%M %Z} by streamcal {report.streamcal}."),
    )


def _summary(report: Report) -> Markup:
    status = report.status
    view, join = status.views[0], status.join
    cards = []
    for field, name in _CARDS.items():
        before, after = getattr(view.before, field), getattr(view.after, field)
        if before is not None and after is not None:
            cards.append(_card(name, f"{after:.5f}", f"before: {before:.5f}", _change(before, after)))
    old, new = status.before.worst_gap, status.after.worst_gap
    if old is not None and new is not None:
        name = f"Worst gap over {status.worst_gap_labels:,} labels"
        cards.append(_card(name, f"{points(new)} points", f"before: {points(old)} points"))
    cards.append(
        _card("Labels that met a prediction", f"{join.joined:,}", f"of {join.predictions:,} predictions")
    )
    if view.served is not None:
        cards.append(_certificate_card(view.served))
    state = "deviates" if view.verdict.deviates else view.verdict.state.replace(" ", "-")
    return tag(
        "section",
        tag("p", *_verdict(view), class_=f"verdict {state}"),
        tag("dl", *cards, class_="cards"),
        aria_label="In short",
    )


def _certificate_card(served: Served) -> Markup:
    """Return what is certified; without a claim, the reason."""
    claim = served.certified
    if claim is None:
        words, where = served.no_claim or "no claim yet", ""
    else:
        of_target = claim.domain == "source" and claim.target_risk != "none"
        words = claim.target_risk if of_target else claim.risk
        where = "in the target" if of_target else f"by the labels of the {claim.domain}"
        if (claim.target_risk_bound if of_target else claim.risk_bound) is not None:
            return _card("Certified risk: at most", words, f"{1.0 - claim.delta:.0%} sure, {where}")
    none, _, why = words.partition(": ")
    return _card("Certified risk", none, why, quiet=True)


def _verdict(view: View) -> list[object]:
    verdict = view.verdict
    return [tag("strong", verdict.sentence), f" {verdict.evidence} {verdict.advice}".rstrip()]


def _change(before: float, after: float) -> Markup | None:
    if not before:
        return None
    share = after / before - 1.0
    return tag("span", f"{share:+.1%}".replace("-", "−"), class_="good" if share <= 0.0 else "bad")


def _card(
    name: str, figure: str, beside: str, change: Markup | None = None, *, quiet: bool = False
) -> Markup:
    below = [tag("span", beside, class_="beside"), " " if change else None, change]
    kind = "figure quiet" if quiet else "figure"
    return tag("div", tag("dt", name), tag("dd", tag("div", figure, class_=kind), *below), class_="card")


def _alarms(report: Report) -> Markup | None:
    """Return the alarms, a line each, and the remarks: what holds now, then what is over."""
    status = report.status
    now = [_alarm(alarm) for alarm in reversed(status.alarms) if not alarm.over]
    then = [_alarm(alarm) for alarm in reversed(status.alarms) if alarm.over]
    now += [tag("li", remark) for remark in status.warnings]
    if not now and not then:
        return None
    title = "One earlier alarm, over now" if len(then) == 1 else f"{len(then)} earlier alarms, over now"
    over = tag("details", tag("summary", title), tag("ul", *then, class_="notes over"))
    return tag("div", tag("ul", *now, class_="notes") if now else None, over if then else None)


def _alarm(alarm: RecordedAlarm) -> Markup:
    """Return an alarm: what was found, and when opened, the figures and what to do."""
    after = f" After {alarm.target_labels:,} labels." if alarm.target_labels else ""
    words = f"{alarm.reason.rstrip('.')}.{after} {alarm.advice}"
    key = [] if alarm.key is None else ["Key ", tag("bdi", alarm.key), ": "]
    return tag("li", tag("details", tag("summary", *key, alarm.title), tag("p", words)))


def _in_words(key: str | None) -> str:
    return "" if key is None else f", key {key}"


def _certified(views: list[View]) -> Markup | None:
    claims = [_claim(view, view.served) for view in views if view.served is not None]
    return tag("div", *claims, class_="claims") if claims else None


def _claim(view: View, served: Served) -> Markup:
    title = None if view.key is None else tag("h3", "Key ", tag("bdi", view.key))
    claim = served.certified
    if claim is None:
        words = tag("p", "Nothing yet: there is no map, or none that was certified.")
        return tag("div", title, words, class_="claim")
    rows = [[f"risk of the map, {claim.domain}", claim.risk]]
    if claim.domain == "source" and claim.target_risk != "none":
        rows.append(["risk in the target", claim.target_risk])
    words = tag(
        "p",
        f"Map version {claim.version:,}. With probability {1.0 - claim.delta:g} at least, the bounds of"
        " all versions of the stream hold together, as long as the assumptions hold.",
    )
    worst = f"{claim.pending:,} labels that have not come are taken to be whatever makes the bound larger."
    refuted = [tag("li", "Refuted: ", each) for each in claim.refuted]
    held = [tag("li", "Assumed: ", each) for each in claim.assumptions if each not in claim.refuted]
    return tag(
        "div",
        title,
        words,
        data_table(["bound on", "at most"], rows, kind="words"),
        tag("p", worst) if claim.pending else None,
        tag("ul", *refuted, *held, class_="points"),
        class_="claim",
    )


def _labels(report: Report) -> Markup:
    join = report.status.join
    rows = [
        ["labels that met their prediction", f"{join.joined:,}"],
        ["came before their prediction", f"{join.early:,}"],
        ["came after their prediction had expired", f"{join.late:,}"],
        ["never found a prediction", f"{join.unmatched:,}"],
        ["duplicates", f"{join.duplicate:,}"],
        ["unlike the first", f"{join.corrected:,}"],
        ["came as 1 after their prediction had counted as 0", f"{join.contradicted:,}"],
        ["predictions that wait for their label", f"{report.status.pending:,}"],
        ["predictions that expired without one", f"{join.expired:,}"],
        ["predictions that counted as 0 without one", f"{join.implied:,}"],
        *map(list, delay_rows(report.status.delay)),
        *(list(row) for each in report.status.engines for row in held_rows(each.held, _in_words(each.key))),
    ]
    first, *others = rows
    rows = [first, *(row for row in others if row[1] != "0")]
    delays = [[f"{each.share:.0%}", show_duration(each.seconds)] for each in report.status.delays]
    return tag(
        "div",
        data_table(["what became of them", "how many"], rows),
        data_table(["share of the labels", "came within"], delays) if delays else None,
        class_="columns",
    )


def _rejects(report: Report) -> Markup | None:
    status = report.status
    if not status.rejected:
        return None
    most = max(status.reasons.values(), default=1)
    rows = [[TITLES[code], f"{count:,}", _bar(count / most)] for code, count in status.reasons.items()]
    places = [[tag("bdi", each.source), each.line, TITLES[each.code]] for each in status.rejects]
    words = (
        f"{status.rejected:,} of {status.events:,} events changed nothing. Their text is not in this report:"
        " --rejects, and the table rejects of a store, keep it."
    )
    latest = tag(
        "details",
        tag("summary", "The latest of them"),
        data_table(["source", "line", "reason"], places, kind="words"),
    )
    return tag(
        "div",
        tag("p", words),
        data_table(["reason", "events", "share"], rows, kind="bars"),
        latest if places else None,
    )


def _bar(share: float) -> Markup:
    bar = tag("rect", width=f"{max(100.0 * share, 0.5):.1f}", height=12, class_="bar")
    return tag("svg", bar, viewBox="0 0 100 12", preserveAspectRatio="none", aria_hidden="true")


def _by_key(views: list[View], keys: int) -> Markup | None:
    if not views:
        return None
    rows = [
        [
            tag("bdi", view.key),
            f"{view.labels:,}",
            *(
                "–" if value is None else f"{value:.5f}"
                for value in (view.before.brier, view.after.brier, view.before.ece, view.after.ece)
            ),
        ]
        for view in views
    ]
    parts = [
        tag("section", tag("h3", "Key ", tag("bdi", view.key)), _charts(number, first=True))
        for number, view in enumerate(views, 1)
    ]
    words = f"The first {len(views):,} of {keys:,} keys." if keys > RATED_KEYS else None
    return tag(
        "div",
        None if words is None else tag("p", words),
        data_table(["key", "labels", "Brier before", "after", "ECE before", "after"], rows),
        *parts,
    )


def _by_group(groups: GroupColumns) -> Markup | None:
    """Return a table of the worst segments and keys."""
    if not groups.name:
        return None
    rows = [
        [
            tag("bdi", field),
            "–" if name is None else tag("bdi", name),
            f"{labels:,}",
            f"{forecast:.4f}",
            f"{rate:.4f}",
            f"{low:+.4f} to {high:+.4f}",
            "surely" if deviates else "",
            f"{before:.5f}",
            f"{after:.5f}",
        ]
        for field, name, labels, forecast, rate, low, high, before, after, deviates in islice(
            zip(*msgspec.structs.astuple(groups), strict=True), _SHOWN_GROUPS
        )
    ]
    words = (
        f"The worst {len(rows)} of {len(groups.name):,}, from the first label on. Gap: mean forecast − rate,"
        " 95% sure for each alone. Surely: off by more than a tenth of the rarer class; on average at most 5%"
        " of these by chance."
    )
    head = ["field", "value", "labels", "forecast", "rate", "gap", "off", "Brier before", "after"]
    return tag("div", tag("p", words), data_table(head, rows))


def _all_figures(report: Report) -> Markup:
    rows = [[each.name, each.value] for each in report.figures]
    return _folded("The table at the end of the run", data_table(["what", "figure"], rows, kind="plain"))


def _options(options: Mapping[str, Any]) -> Markup | None:
    usual = dict(_flat(RunConfig().model_dump(mode="json", exclude={"connectors"})))
    rows = [
        [name, _words(value), "" if value == usual.get(name, value) else _words(usual[name])]
        for name, value in _flat(options)
    ]
    return (
        _folded("Every option", data_table(["option", "value", "by default"], rows, kind="words"))
        if rows
        else None
    )


def _folded(title: str, part: Markup) -> Markup:
    return tag("details", tag("summary", title), part)


def _flat(options: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _words(value: object) -> str:
    return "none" if value is None or value in ({}, [], ()) else str(value)

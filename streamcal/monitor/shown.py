"""Contents of the page and of the report: cards, sections and tables of text, which its script lays out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from streamcal.base.times import show_duration
from streamcal.events.codes import TITLES
from streamcal.monitor.decisions import decision_rows
from streamcal.monitor.rows import (
    FIGURES,
    GROUP_HEAD,
    Card,
    cards,
    closing_rows,
    delay_rows,
    group_rows,
    held_rows,
    label_rows,
    rating_rows,
    shown_value,
)
from streamcal.monitor.status import RecordedAlarm, Served, Status, View
from streamcal.run.config import RunConfig

_KEYED: Final = [figure for figure in FIGURES if figure.card and not figure.windows]


class Grid(msgspec.Struct):
    """A table; the first cell of a row names it."""

    head: list[str]
    rows: list[list[str]]


class Section(msgspec.Struct):
    """A titled part; without words and tables it is hidden."""

    id: str
    title: str
    words: list[str]
    tables: list[Grid]
    folded: bool = False
    """Whether it is closed at first."""


class Note(msgspec.Struct):
    """An alarm, a line that opens."""

    title: str
    words: str
    over: bool


class ShownView(msgspec.Struct):
    """Contents that depend on the key that is chosen."""

    verdict: str
    state: str
    evidence: str
    cards: list[Card]
    certified: Section


class Shown(msgspec.Struct):
    """Contents of a page; nothing is markup."""

    views: list[ShownView]
    """Sections of the views of the status, in their order."""
    alarms: list[Note]
    """The newest first."""
    remarks: list[str]
    sections: list[Section]


def make_shown(status: Status) -> Shown:
    """Return what page and report show of a run, whose status has views."""
    alarms = [_alarm(alarm) for alarm in reversed(status.alarms)]
    views = [_view(status, view) for view in status.views]
    return Shown(views, alarms, [each.words for each in status.remarks], [*_sections(status)])


def _view(status: Status, view: View) -> ShownView:
    verdict, served = view.verdict, view.served
    labels = Card("labels joined", f"{view.labels:,}", f"{status.pending:,} predictions wait for theirs")
    whose = "" if view.key is None else f"{view.key}: "
    return ShownView(
        whose + verdict.sentence,
        "deviates" if verdict.deviates else verdict.state,
        f"{verdict.evidence} {verdict.advice}".strip(),
        [*cards(view.before.figures, view.after.figures), labels, *_certificate_card(served)],
        _certified(served, several=status.keys > 1),
    )


def _certificate_card(served: Served | None) -> Iterator[Card]:
    """Yield the card of what is certified; without a claim, the reason."""
    if served is None:
        return
    claim = served.certified
    if claim is None:
        yield Card("certified risk", "–", served.no_claim or "no claim yet", quiet=True)
        return
    bound = claim.bounds[-1]
    if bound.value is None:
        yield Card("certified risk", "–", bound.words, quiet=True)
    else:
        below = f"{1.0 - claim.delta:.0%} sure, {bound.of}, version {claim.version:,}"
        yield Card("certified risk, at most", bound.words, below)


def _certified(served: Served | None, *, several: bool) -> Section:
    claim = None if served is None else served.certified
    if claim is None:
        own = served is None and several
        words = ["Each key has a certificate of its own: choose a key." if own else "Nothing yet."]
        return Section("certified", "What is certified", words, [])
    words = [
        f"Map version {claim.version:,}. With probability {1.0 - claim.delta:g} at least, the bounds of"
        " all versions of the stream hold together, as long as the assumptions hold."
    ]
    if claim.pending:
        words.append(f"{claim.pending:,} labels that have not come are taken to be whatever is worse.")
    bounds = [[f"risk {bound.of}", bound.words] for bound in claim.bounds]
    states = [[each, "refuted"] for each in claim.refuted]
    states += [[each, "assumed"] for each in claim.assumptions if each not in claim.refuted]
    tables = [Grid(["bound on", "at most"], bounds), Grid(["assumption", "it is"], states)]
    return Section("certified", "What is certified", words, tables)


def _alarm(alarm: RecordedAlarm) -> Note:
    after = f" After {alarm.target_labels:,} labels." if alarm.target_labels else ""
    title = alarm.title if alarm.key is None else f"{alarm.key}: {alarm.title}"
    return Note(title, f"{alarm.reason.rstrip('.')}.{after} {alarm.advice}", alarm.over)


def _sections(status: Status) -> Iterator[Section]:
    """Yield the sections, always the same ones."""
    ratings = rating_rows(status)
    defined = " ".join(f"{figure.title.strip()}: {figure.help}" for figure in FIGURES if figure.title)
    yield Section("figures", "All figures", [defined], _grids((("figure", "before", "after"), ratings)))
    decided = _grids((("decisions", "figure"), decision_rows(status)))
    words = ["Intervals hold at any time. What is expected assumes calibrated forecasts."] if decided else []
    yield Section("decisions", "Decisions", words, decided)
    labels = [(name.strip(), f"{count:,}") for name, count in label_rows(status) if count]
    labels += delay_rows(status.delay)
    for each in status.engines:
        labels += held_rows(each, "" if each.key is None else f", key {each.key}")
    delays = [(f"{each.share:.0%}", show_duration(each.seconds)) for each in status.delays]
    tables = (("what became of them", "how many"), labels), (("share of the labels", "came within"), delays)
    yield Section("labels", "Labels and predictions", [], _grids(*tables))
    yield _rejects(status)
    keys = [_key(view) for view in status.views[1:]]
    words = [f"The first {len(keys)} of {status.keys:,} keys."] if 0 < len(keys) < status.keys else []
    rated = [f"{figure.title} {when}" for figure in _KEYED for when in ("before", "after")]
    head = ("key", "labels", "rate of label 1", *rated, "prior", "version", "certified risk")
    yield Section("keys", "Keys", words, _grids((head, keys)))
    groups = group_rows(status.groups)
    words = [
        "From the first label on. Gap: mean forecast − rate, 95% sure for each alone. An exclamation mark:"
        " surely off by more than a tenth of the rarer class; on average at most 5% of these by chance."
    ]
    title = "Segments, classes and keys, the worst first"
    yield Section("groups", title, words if groups else [], _grids((GROUP_HEAD, groups)))
    closing = (("what", "figure"), closing_rows(status))
    yield Section("table", "The table at the end of a run", [], _grids(closing), folded=True)
    usual = dict(_flat(RunConfig().model_dump(mode="json", exclude={"connectors"})))
    options = [
        (name, _words(value), "" if value == usual.get(name, value) else _words(usual[name]))
        for name, value in _flat(status.options)
    ]
    shown = _grids((("option", "value", "by default"), options))
    yield Section("options", "Options of the run", [], shown, folded=True)


def _rejects(status: Status) -> Section:
    rejected = status.rejected
    words = [f"{rejected:,} of {status.events:,} events changed nothing."] if rejected else []
    reasons = [(TITLES[code], f"{n:,}", f"{n / rejected:.1%}") for code, n in status.reasons.items()]
    latest = [(each.source, f"{each.line:,}", TITLES[each.code]) for each in status.rejects]
    tables = (("reason", "events", "share"), reasons), (("latest from", "line", "reason"), latest)
    return Section("rejects", "Rejected events", words, _grids(*tables))


def _key(view: View) -> list[str]:
    served = view.served
    sides = view.before.figures, view.after.figures
    certified = None if served is None or served.certified is None else served.certified.bounds[-1].words
    cells = (
        view.positives / view.labels if view.labels else None,
        *(getattr(side, figure.field) for figure in _KEYED for side in sides),
        *((None, None) if served is None else (served.target_prior, served.version)),
        certified,
    )
    return [str(view.key), f"{view.labels:,}", *map(shown_value, cells)]


def _grids(*tables: tuple[Iterable[str], Iterable[Sequence[str]]]) -> list[Grid]:
    """Return tables, without those that have no row."""
    made = [Grid([*head], [[*row] for row in rows]) for head, rows in tables]
    return [grid for grid in made if grid.rows]


def _flat(options: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _words(value: object) -> str:
    return "none" if value is None or value in ({}, [], ()) else str(value)

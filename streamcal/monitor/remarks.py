"""Remarks on a run: what a careful colleague would mention, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Final

from streamcal.events.codes import TITLES
from streamcal.events.columns import did_you_mean
from streamcal.events.faces import COMMAND, Face
from streamcal.monitor.status import Served, Status
from streamcal.run.order import BACKWARDS, TimesRead
from streamcal.times import show_duration
from streamcal.values import shown

__all__ = ["of_rejects", "remarks"]

_REJECTED: Final = 0.01  # share of the events
_MOSTLY: Final = 0.5  # share of the labels, or of the predictions
_CONTRADICTED: Final = 0.05  # share of the positive labels
_FEW: Final = 20  # labels from which nothing can be concluded
_SHOWN: Final = 3  # reasons
_SHOWN_FIELDS: Final = 5
_BACKWARDS: Final = 0.01  # share of the events
_SHOWN_RANGES: Final = 3
_SEVERAL: Final = 3  # keys
_MANY: Final = 1000  # first labels that are held
_PER_KEY: Final = 2000  # labels of a key that learns alone
_PAGE: Final = "docs/late-labels.md"


def remarks(status: Status, face: Face = COMMAND) -> list[str]:
    """Return one line for each thing that is worth a word, the gravest first.

    The figures are those of the table: with a store, of all runs on it. The unknown fields and the
    lines that were left are those of this run's sources. ``face``: in whose words it says what to do.
    """
    return [
        *of_rejects(status, face),
        *_join(status, face),
        *_held(status, face),
        *_classes(status),
        *_coverage(status),
        *_source(status, face),
        *_small_keys(status),
        *_groups(status),
        *_times(status.times, status.events, face),
        *_segments(status),
        *(f"{each}." for each in status.unfinished),
        *_unknown(status.unknown_fields),
    ]


def of_rejects(status: Status, face: Face, least: float = _REJECTED) -> list[str]:
    """Return the remark that events were rejected, if they are more than a share of all."""
    rejected, events, most = status.rejected, status.events, [*status.reasons.items()]
    if rejected <= least * events:
        return []
    text = "; ".join(f"{_often(count)}, {TITLES[code]}" for code, count in most[:_SHOWN])
    if len(most) > _SHOWN:
        text += f"; {_often(sum(count for _, count in most[_SHOWN:]))}, for other reasons"
    return [
        f"{rejected:,} of {events:,} events were rejected ({rejected / events:.1%})"
        f"{': ' + text if text else ''}. {face.rejects}"
    ]


def _join(status: Status, face: Face) -> list[str]:
    counts, words = status.join, []
    labels, predictions = counts.labels, counts.predictions
    after = status.label_delay_limit
    if after is not None and not counts.joined + counts.implied and status.pending:
        return [
            f"Nothing was learned: the {status.pending:,} predictions of the last {show_duration(after)}"
            " (label_delay_limit) still wait, and the stream is no longer than that. Let it go on, or lower"
            f" {face.join.format('label_delay_limit')}."
        ]
    if labels and not counts.joined and counts.late <= _MOSTLY * labels:
        return [
            f"None of the {labels:,} labels met one of the {predictions:,} predictions."
            " Have the labels the ids of the predictions, in the same form, and do they come within"
            f" {face.join.format('label_ttl')}?"
        ]
    wait = "label_ttl" if after is None else "label_delay_limit"
    for count, what, advice in (
        (
            counts.late,
            "came late, after their prediction had expired",
            f"Raise {face.join.format(wait)}, and check that the times of predictions and labels are of one"
            " clock.",
        ),
        (
            counts.early - counts.unmatched,  # the others waited in vain
            "came before their prediction",
            f"Check that the times of predictions and labels are of one clock, {face.exchanged}.",
        ),
        (
            counts.unmatched,
            "never found a prediction",
            "Check that the ids are those of the predictions, and that no predictions are missing.",
        ),
    ):
        if count > _MOSTLY * labels:
            words.append(f"{count:,} of {labels:,} labels ({count / labels:.0%}) {what}. {advice}")
    told, contradicted = status.positives, counts.contradicted
    if after is not None and contradicted > _CONTRADICTED * (told + contradicted):
        words.append(
            f"{contradicted:,} of {told + contradicted:,} positive labels"
            f" ({contradicted / (told + contradicted):.0%}) came after their prediction had counted as 0."
            f" {face.join.format('label_delay_limit')}, {show_duration(after)}, is too short: raise it."
        )
    if labels and counts.expired > _MOSTLY * predictions:
        words.append(
            f"{counts.expired:,} of {predictions:,} predictions ({counts.expired / predictions:.0%}) expired"
            f" without a label. If labels take longer than {face.join.format('label_ttl')}, raise it; if only"
            " some cases are ever labelled, the map is right for such cases alone."
        )
    return words


def _held(status: Status, face: Face) -> list[str]:
    """Return the remarks that labels of a class stopped or never came, and that the first are long held."""
    waiting = [(engine, engine.held) for engine in status.engines if engine.held and engine.held.first]
    missing = [each for each in waiting if each[1].missing is not None and each[1].held >= _FEW]
    short = [each for each in waiting if each[1].missing is None and each[1].held >= _MANY]
    stopped = [(engine, engine.held, engine.held.outage) for engine in status.engines if engine.held]
    out = [(engine, held, outage) for engine, held, outage in stopped if outage is not None]
    words = [
        f"Labels {label}{_of_keys(engine, out)} have stopped since {held.moment(since)}: labels {1 - label}"
        " come as before, and predictions without a label pile up. Check the feed of these labels: until they"
        f" come, forecasts are learned as if label {label} had become rare."
        for engine, held, (label, since) in out[:1]
    ]
    for engine, held in missing[:1]:
        which = held.missing or 0
        advice = (
            "Check how labels are coded, and whether positives are reported at all."
            if which
            else f"If nobody reports negatives, set {face.missing_labels} with label_delay_limit: {_PAGE}."
        )
        words.append(
            f"No label {which}{_of_keys(engine, missing)} has come for {held.age(held.oldest)}, though some"
            f" are expected: {held.held:,} labels {1 - which} are held, and {_serves(engine)} is served,"
            f" until one does. {advice}"
        )
    for engine, held in short[:1]:
        words.append(
            f"The first {held.held:,} labels{_of_keys(engine, short)} are held, the oldest for"
            f" {held.age(held.oldest)}: of one class, fewer than expected have come. Meanwhile"
            f" {_serves(engine)} is served. They are used once they are a fair sample."
        )
    return words


def _of_keys(engine: Served, all_: Sequence[object]) -> str:
    """Return which keys a remark is about; nothing of an engine without one."""
    more = f" and {len(all_) - 1} more" if len(all_) > 1 else ""
    return "" if engine.key is None else f" of key {shown(engine.key)}{more}"


def _serves(engine: Served) -> str:
    return "the source's map" if engine.source_labels else "the score"


def _classes(status: Status) -> list[str]:
    if status.classes:  # a model whose decisions are all right is no mistake
        return []
    joined = [0] * (status.positives < status.labels) + [1] * (status.positives > 0)
    if any(engine.held is not None and engine.held.missing is not None for engine in status.engines):
        joined = []  # which has a remark of its own
    return [
        f"All {labels:,} {which} labels are {classes[0]}: a map of one class says nothing."
        " Check how the labels are coded, and whether those of the other class come at all."
        for which, labels, classes in (
            ("source", status.source_labels, status.source_classes),
            ("joined", status.labels, joined),
        )
        if labels >= _FEW and len(classes) == 1
    ]


def _coverage(status: Status) -> list[str]:
    if not status.unlabelled:
        return []
    widest = sorted(status.unlabelled, key=lambda each: -each.predictions)[:_SHOWN_RANGES]
    in_order = sorted(widest, key=lambda each: each.low)
    named = " and ".join(f"from {each.low:.3g} to {each.high:.3g}" for each in in_order)
    predictions, labels = (sum(getattr(each, name) for each in widest) for name in ("predictions", "labels"))
    return [
        f"Labels hardly reach scores {named}: of {predictions:,} predictions there that are old enough,"
        f" {labels:,} got one, against {status.labelled:.0%} of all. What the map says there,"
        " other scores taught, and the figures are of those. Have some of these cases labelled at random, and"
        f" give each label its propensity: {_PAGE}."
    ]


def _source(status: Status, face: Face) -> list[str]:
    engines = status.engines
    lacking = [engine for engine in engines if engine.lacks_source]
    if not lacking:
        return []
    mode, which = lacking[0].mode, ""
    if len(engines) > 1:
        which = f" for {len(lacking)} of the first {len(engines)} keys, such as {shown(lacking[-1].key)}"
    return [
        f"Mode {mode!r} got no labels of the source{which}: the scores were served unchanged. Give labels"
        f" from before the deployment {face.calibration}, each with its key if there are keys, or take"
        f' {face.mode} or "target", which need none.'
    ]


def _segments(status: Status) -> list[str]:
    words = []
    for name in status.missing_segments:
        near = get_close_matches(name, status.unknown_fields or (), 1)
        meant = f"did you mean {shown(near[0])}?" if near else "check the name."
        words.append(f"No prediction with a label has {shown(name)}, of [segments] fields: {meant}")
    return words


def _times(times: TimesRead, events: int, face: Face) -> list[str]:
    words = []
    if times.converted:
        words.append(
            f"{_often(times.converted)}, an event time was in milliseconds or finer and was taken as such."
            " Write seconds since the epoch, or ISO 8601."
        )
    if times.backwards > _BACKWARDS * events:
        words.append(
            f"{times.backwards:,} of {events:,} events ({times.backwards / events:.0%}) are more than"
            f" {BACKWARDS:.0f} seconds earlier than one {face.before}: they were taken as if they had come"
            f" when that one did. {face.sort}"
        )
    return words


def _unknown(fields: Mapping[str, int] | None) -> list[str]:
    if not fields:
        return []
    most = sorted(fields.items(), key=lambda item: (-item[1], item[0]))
    named = [_field(name, count) for name, count in most[:_SHOWN_FIELDS]]
    if len(most) > _SHOWN_FIELDS:
        named.append(f"and {len(most) - _SHOWN_FIELDS:,} more")
    return [f"Unknown fields were ignored: {', '.join(named)}."]


def _field(name: str, count: int) -> str:
    """Return a field with its count, and the field that may be meant."""
    meant = did_you_mean(name)
    return f"{name[:40]} ({_often(count)}{f': did you mean {meant}?' if meant else ''})"


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _small_keys(status: Status) -> list[str]:
    if status.keys < _SEVERAL or not _FEW <= status.labels < _PER_KEY * status.keys:
        return []
    return [
        f"{status.keys:,} keys have {status.labels / status.keys:,.0f} labels each on average, and each key"
        " learns alone. If they are segments of one model, such as countries, [segments] fields lets them"
        " share: docs/segments.md."
    ]


def _groups(status: Status) -> list[str]:
    groups = status.groups
    count = sum(groups.deviates)
    if not count:
        return []
    named = zip(groups.field, groups.name, groups.gap_low, groups.gap_high, strict=True)
    worst = [
        f"{field} {'without a value' if name is None else shown(name)} ({_points(low, high)})"
        for field, name, low, high in islice(named, min(count, _SHOWN))
    ]
    which = "segments" if any(field != "key" for field in groups.field) else "keys"
    which = "classes" if "class" in groups.field else which
    return [
        f"Forecasts of {count:,} of {len(groups.deviates):,} {which} are surely off by more than a tenth of"
        f" the rarer class since the first label, the worst: {', '.join(worst)}. See what is different there."
    ]


def _points(low: float, high: float) -> str:
    """Return an interval of mean forecast − rate in points."""
    if low < 0.0 < high:
        return f"{-100.0 * low:.2g} points too low to {100.0 * high:.2g} too high"
    ends = sorted((abs(100.0 * low), abs(100.0 * high)))
    return f"{ends[0]:.2g} to {ends[1]:.2g} points too {'high' if low > 0.0 else 'low'}"

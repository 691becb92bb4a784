"""Remarks on a run: what a careful colleague would mention, and what to do about it.

A remark is a code with fields; `_TEXTS` is the one table that puts it into words, in the terms of a face.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice
from string import Formatter
from typing import Any, Final

from streamcal.base.times import show_duration, show_time
from streamcal.base.values import shown
from streamcal.events.codes import TITLES, Code
from streamcal.events.columns import did_you_mean
from streamcal.events.faces import Face
from streamcal.monitor.rows import age, lost_words, outage_start
from streamcal.monitor.status import Remark, RemarkCode, Served, Status
from streamcal.run.order import BACKWARDS

_REJECTED: Final = 0.01  # share of the events
_MOSTLY: Final = 0.5  # share of the labels, or of the predictions
_APART: Final = 0.3  # share of the labels of one of several runs: of two, half would be apart
_CONTRADICTED: Final = 0.05  # share of the positive labels
_FEW: Final = 20  # labels from which nothing can be concluded
_SHOWN: Final = 3  # reasons, ranges, groups
_SHOWN_FIELDS: Final = 5
_BACKWARDS: Final = 0.01  # share of the events
_SEVERAL: Final = 3  # keys
_MANY: Final = 1000  # first labels that are held
_PER_KEY: Final = 2000  # labels of a key that learns alone
_PAGE: Final = "docs/late-labels.md"

_Found = Iterator[tuple[RemarkCode, dict[str, Any]]]

_TEXTS: Final[dict[RemarkCode, str]] = {
    "lost_records": (
        "Records of {places} were deleted before they were read, {lost}: they were neither answered nor"
        " learned, and the verdict knows nothing of them. Raise the retention of the topic."
    ),
    "rejected": "{count:,} of {events:,} events were rejected ({share:.1%}){reasons:reasons}. {face.rejects}",
    "nothing_due": (
        "Nothing was learned: the {pending:,} predictions of the last {limit:duration} (label_delay_limit)"
        " still wait, and the stream is no longer than that. Let it go on, or lower {option:option}."
    ),
    "nothing_joined": (
        "None of the {labels:,} labels met one of the {predictions:,} predictions. Have the labels the ids of"
        " the predictions, in the same form, and do they come within {option:option}?{shard:shard}"
    ),
    "late_labels": (
        "{count:,} of {labels:,} labels ({share:.0%}) came late, after their prediction had expired."
        " Raise {option:option}, and check that the times of predictions and labels are of one clock."
    ),
    "early_labels": (
        "{count:,} of {labels:,} labels ({share:.0%}) came before their prediction."
        " Check that the times of predictions and labels are of one clock, {face.exchanged}.{shard:shard}"
    ),
    "unmatched_labels": (
        "{count:,} of {labels:,} labels ({share:.0%}) never found a prediction."
        " Check that the ids are those of the predictions, and that no predictions are missing.{shard:shard}"
    ),
    "contradicted_labels": (
        "{count:,} of {positives:,} positive labels ({share:.0%}) came after their prediction had counted"
        " as 0. {option:option}, {limit:duration}, is too short: raise it."
    ),
    "expired_predictions": (
        "{count:,} of {predictions:,} predictions ({share:.0%}) expired without a label. If labels take"
        " longer than {option:option}, raise it; if only some cases are ever labelled, the map is right"
        " for such cases alone."
    ),
    "class_stopped": (
        "Labels {label}{key:key} have stopped since {since}: labels {other} come as before, and predictions"
        " without a label pile up. Check the feed of these labels: until they come, forecasts are learned as"
        " if label {label} had become rare."
    ),
    "no_positives": (
        "No label 1{key:key} has come for {age}, though some are expected: {held:,} labels 0 are held, and"
        " {serves} is served, until one does. Check how labels are coded, and whether positives are reported"
        " at all."
    ),
    "no_negatives": (
        "No label 0{key:key} has come for {age}, though some are expected: {held:,} labels 1 are held, and"
        " {serves} is served, until one does. If nobody reports negatives, set {face.missing_labels} with"
        f" label_delay_limit: {_PAGE}."
    ),
    "first_labels_held": (
        "The first {held:,} labels{key:key} are held, the oldest for {age}: of one class, fewer than expected"
        " have come. Meanwhile {serves} is served. They are used once they are a fair sample."
    ),
    "decided": (
        "All scores of the {labels:,} joined labels are 0 or 1, as decisions are."
        " Give the probabilities behind them: of scikit-learn, those of predict_proba."
    ),
    "one_class": (
        "All {labels:,} {which} labels are {label}: a map of one class says nothing."
        " Check how the labels are coded, and whether those of the other class come at all."
    ),
    "unlabelled_scores": (
        "Labels hardly reach scores {ranges:ranges}: of {predictions:,} predictions there that are old"
        " enough, {labels:,} got one, against {share:.0%} of all. What the map says there, other scores"
        " taught, and the figures are of those. Have some of these cases labelled at random, and give each"
        f" label its propensity: {_PAGE}."
    ),
    "no_source": (
        "Mode {mode!r} got no labels of the source{keys}: the scores were served unchanged. Give labels"
        " from before the deployment {face.calibration}, each with its key if there are keys, or take"
        ' {face.mode} or "target", which need none.'
    ),
    "small_keys": (
        "{keys:,} keys have {labels:,.0f} labels each on average, and each key learns alone. If they are"
        " segments of one model, such as countries, [segments] fields lets them share: docs/segments.md."
    ),
    "groups_deviate": (
        "Forecasts of {count:,} of {groups:,} {which} are surely off by more than a tenth of the rarer class"
        " since the first label, the worst: {worst:groups}. See what is different there."
    ),
    "milliseconds": (
        "{count:often}, an event time was in milliseconds or finer and was taken as such."
        " Write seconds since the epoch, or ISO 8601."
    ),
    "far_ahead": (
        "{count:often}, an event had a time far ahead of the others, the latest of them {id:shown},"
        " {time:time}, {ahead:duration} ahead ({source}, {face.line} {line}). Such a time ends no wait."
        " Check the clock, and the time zone, of what wrote it."
    ),
    "backwards": (
        "{count:,} of {events:,} events ({share:.0%}) are more than {limit:.0f} seconds earlier than one"
        " {face.before}: they were taken as if they had come when that one did. {face.sort}"
    ),
    "missing_segment": "No prediction with a label has {name:shown}, of [segments] fields: {meant:meant}",
    "unfinished": "{place}.",
    "unknown_fields": "Unknown fields were ignored: {fields:fields}.",
    "no_labels": (
        "No labels were given, so nothing is learned. Give a frame of labels, or a column of the predictions."
    ),
    "no_times": (
        "No times are known, so all predictions were answered before the first label came. Give both frames a"
        " column of times, or give labels that are known at once as a column of the predictions."
    ),
    "untimed": (
        "{count:,} of {events:,} events ({share:.0%}) have no time, though others do: they were taken at the"
        " time of the one before them, or before all others. Give each its time."
    ),
}


def remarks(status: Status, face: Face) -> list[Remark]:
    """Return a remark for each thing that is worth a word, the gravest first, in the words of a face.

    The figures are those of the table: with a store, of all runs on it. The unknown fields and the
    lines that were left are those of this run's sources.
    """
    of = _lost, _rejects, _join, _held, _classes, _coverage, _source, _small_keys, _groups, _times, _fields
    return [remark(code, fields, face) for find in of for code, fields in find(status)]


def remark(code: RemarkCode, fields: dict[str, Any], face: Face) -> Remark:
    """Return a remark in the words of a face."""
    return Remark(code, fields, _Words(face).vformat(_TEXTS[code], (), {**fields, "face": face}))


def of_rejects(status: Status, face: Face) -> list[Remark]:
    """Return the remark that events were rejected, if any was."""
    return [remark(code, fields, face) for code, fields in _rejects(status, 0.0)]


def _lost(status: Status) -> _Found:
    if status.lost:
        places = ", ".join([*islice(status.lost, _SHOWN), *["…"] * (len(status.lost) > _SHOWN)])
        yield "lost_records", {"places": places, "lost": lost_words(status)}


def _rejects(status: Status, least: float = _REJECTED) -> _Found:
    count, events = status.rejected, status.events
    if count > least * events:
        reasons = dict(status.reasons)
        yield "rejected", {"count": count, "events": events, "share": count / events, "reasons": reasons}


def _join(status: Status) -> _Found:
    counts, limit, shard = status.join, status.label_delay_limit, status.options.get("shard")
    most = _APART if shard else _MOSTLY
    labels, predictions = counts.labels, counts.predictions
    if limit is not None and not counts.joined + counts.implied and status.pending:
        yield "nothing_due", {"pending": status.pending, "limit": limit, "option": "label_delay_limit"}
        return
    if labels and not counts.joined and counts.late <= _MOSTLY * labels:
        about = {"labels": labels, "predictions": predictions, "option": "label_ttl", "shard": shard}
        yield "nothing_joined", about
        return
    apart: tuple[tuple[RemarkCode, int], ...] = (
        ("late_labels", counts.late),
        ("early_labels", counts.early - counts.unmatched),  # the others waited in vain
        ("unmatched_labels", counts.unmatched),
    )
    option = "label_ttl" if limit is None else "label_delay_limit"
    for code, count in apart:
        if count > most * labels:
            share = {"count": count, "labels": labels, "share": count / labels}
            yield code, {**share, "option": option, "shard": shard}
    count, all_ = counts.contradicted, status.positives + counts.contradicted
    if limit is not None and count > _CONTRADICTED * all_:
        share = {"count": count, "positives": all_, "share": count / all_}
        yield "contradicted_labels", {**share, "limit": limit, "option": "label_delay_limit"}
    if labels and counts.expired > _MOSTLY * predictions and not status.samples:
        share = {"count": counts.expired, "predictions": predictions, "share": counts.expired / predictions}
        yield "expired_predictions", {**share, "option": "label_ttl"}


def _held(status: Status) -> _Found:
    """Yield that labels of a class stopped or never came, and that the first are long held."""
    holding = [(engine, engine.held) for engine in status.engines if engine.held is not None]
    stopped = [each for each in holding if each[1].outage is not None]
    first = [each for each in holding if each[1].first]
    missing = [each for each in first if each[1].missing is not None and each[1].held >= _FEW]
    short = [each for each in first if each[1].missing is None and each[1].held >= _MANY]
    for engine, held in stopped[:1]:
        label = held.outage.label if held.outage is not None else 0
        key = engine.key, len(stopped)
        yield "class_stopped", {"label": label, "other": 1 - label, "key": key, "since": outage_start(held)}
    for some in (missing, short):
        for engine, held in some[:1]:
            fields = {"key": (engine.key, len(some)), "held": held.held, "age": age(held, held.oldest)}
            code: RemarkCode = "no_positives" if held.missing else "no_negatives"
            yield code if some is missing else "first_labels_held", {**fields, "serves": _serves(engine)}


def _serves(engine: Served) -> str:
    return "the source's map" if engine.source_labels else "the score"


def _classes(status: Status) -> _Found:
    if status.classes:  # a model whose decisions are all right is no mistake
        return
    if status.labels >= _FEW and status.decided and status.before.brier:
        yield "decided", {"labels": status.labels}
    joined = [0] * (status.positives < status.labels) + [1] * (status.positives > 0)
    if any(engine.held is not None and engine.held.missing is not None for engine in status.engines):
        joined = []  # which has a remark of its own
    for which, labels, classes in (
        ("source", status.source_labels, status.source_classes),
        ("joined", status.labels, joined),
    ):
        if labels >= _FEW and len(classes) == 1:
            yield "one_class", {"labels": labels, "which": which, "label": classes[0]}


def _coverage(status: Status) -> _Found:
    widest = sorted(status.unlabelled, key=lambda each: -each.predictions)[:_SHOWN]
    if widest:
        ranges = sorted((each.low, each.high) for each in widest)
        predictions, labels = (
            sum(getattr(each, what) for each in widest) for what in ("predictions", "labels")
        )
        counts = {"predictions": predictions, "labels": labels, "share": status.labelled}
        yield "unlabelled_scores", {"ranges": ranges, **counts}


def _source(status: Status) -> _Found:
    engines = status.engines
    lacking = [engine for engine in engines if engine.lacks_source]
    if lacking:
        which = f" for {len(lacking)} of the first {len(engines)} keys, such as {shown(lacking[-1].key)}"
        yield "no_source", {"mode": lacking[0].mode, "keys": which if len(engines) > 1 else ""}


def _small_keys(status: Status) -> _Found:
    if status.keys >= _SEVERAL and _FEW <= status.labels < _PER_KEY * status.keys:
        yield "small_keys", {"keys": status.keys, "labels": status.labels / status.keys}


def _groups(status: Status) -> _Found:
    groups = status.groups
    count = sum(groups.deviates)
    if count:
        which = "segments" if any(field != "key" for field in groups.field) else "keys"
        which = "classes" if "class" in groups.field else which
        named = zip(groups.field, groups.name, groups.gap_low, groups.gap_high, strict=True)
        worst = list(islice(named, min(count, _SHOWN)))
        yield "groups_deviate", {"count": count, "groups": len(groups.field), "which": which, "worst": worst}


def _times(status: Status) -> _Found:
    times, events = status.times, status.events
    if times.converted:
        yield "milliseconds", {"count": times.converted}
    far = status.far_ahead
    if status.doubted and far is not None:
        place = {"source": far.source, "line": far.line}
        ahead = {"id": far.id, "time": far.time, "ahead": far.time - far.clock}
        yield "far_ahead", {"count": status.doubted, **ahead, **place}
    if times.backwards > _BACKWARDS * events:
        count = {"count": times.backwards, "events": events, "share": times.backwards / events}
        yield "backwards", {**count, "limit": BACKWARDS}
    if status.clock is not None and times.untimed > _BACKWARDS * events:
        yield "untimed", {"count": times.untimed, "events": events, "share": times.untimed / events}


def _fields(status: Status) -> _Found:
    """Yield what is missing, or left, in the inputs."""
    for name in status.missing_segments:
        near = get_close_matches(name, status.unknown_fields or (), 1)
        yield "missing_segment", {"name": name, "meant": near[0] if near else None}
    for place in status.unfinished:
        yield "unfinished", {"place": place}
    if status.unknown_fields:
        yield "unknown_fields", {"fields": status.unknown_fields}


class _Words(Formatter):
    """Words of fields, by the specification of their format."""

    def __init__(self, face: Face) -> None:
        self._face = face

    def format_field(self, value: Any, format_spec: str) -> str:
        words: dict[str, Any] = {
            "duration": show_duration,
            "fields": _unknown,
            "groups": lambda some: ", ".join(_group(*each) for each in some),
            "key": lambda key: _of_key(*key),
            "meant": lambda name: f"did you mean {shown(name)}?" if name else "check the name.",
            "often": _often,
            "option": self._face.join.format,
            "ranges": lambda some: " and ".join(f"from {low:.3g} to {high:.3g}" for low, high in some),
            "reasons": _reasons,
            "shard": _of_shard,
            "shown": shown,
            "time": show_time,
        }
        return words[format_spec](value) if format_spec in words else format(value, format_spec)


def _reasons(reasons: dict[Code, int]) -> str:
    most = [*reasons.items()]
    text = "; ".join(f"{_often(count)}, {TITLES[code]}" for code, count in most[:_SHOWN])
    if len(most) > _SHOWN:
        text += f"; {_often(sum(count for _, count in most[_SHOWN:]))}, for other reasons"
    return f": {text}" if text else ""


def _of_shard(shard: str | None) -> str:
    why = "predictions and labels are probably in partitions that differ: write both by the same key"
    return f" As this is shard {shard}, {why}." if shard else ""


def _of_key(key: str | None, keys: int) -> str:
    """Return which keys a remark is about; nothing of an engine without one."""
    return "" if key is None else f" of key {shown(key)}{f' and {keys - 1} more' if keys > 1 else ''}"


def _unknown(fields: dict[str, int]) -> str:
    most = sorted(fields.items(), key=lambda item: (-item[1], item[0]))
    named = []
    for name, count in most[:_SHOWN_FIELDS]:
        meant = did_you_mean(name)
        visible = name[:40] if name.isprintable() else shown(name)
        named.append(f"{visible} ({_often(count)}{f': did you mean {meant}?' if meant else ''})")
    if len(most) > _SHOWN_FIELDS:
        named.append(f"and {len(most) - _SHOWN_FIELDS:,} more")
    return ", ".join(named)


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _group(field: str, name: str | None, low: float, high: float) -> str:
    """Return a segment, and the interval of its mean forecast − rate in points."""
    if low < 0.0 < high:
        points = f"{-100.0 * low:.2g} points too low to {100.0 * high:.2g} too high"
    else:
        ends = sorted((abs(100.0 * low), abs(100.0 * high)))
        points = f"{ends[0]:.2g} to {ends[1]:.2g} points too {'high' if low > 0.0 else 'low'}"
    return f"{field} {'without a value' if name is None else shown(name)} ({points})"

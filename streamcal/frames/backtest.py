"""Backtests for notebooks: a whole run over data frames, of pandas, polars or Arrow, as if it had been live.

The rules are those of ``streamcal run``: events are put in the order of their times, labels meet predictions
by id, every prediction is answered by the map of its moment, and what cannot be taken is rejected. Needs
narwhals (extra ``frames``), and matplotlib (extra ``plots``) to draw.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Final, Unpack, overload

import msgspec
import numpy as np
from pydantic import ValidationError

from streamcal.certificates.record import Certificate
from streamcal.engine.config import Mode, RecalibratorConfig, RecalibratorOptions
from streamcal.events.columns import Columns, did_you_mean
from streamcal.events.input_checks import MeaningError
from streamcal.frames.sources import Frame, FrameSource, narwhals_module
from streamcal.join.join_c import JoinConfig
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.monitor.build import build_status
from streamcal.monitor.remarks import of_rejects
from streamcal.monitor.status import Status
from streamcal.monitor.summary import rating_rows, run_summary
from streamcal.multiclass.class_map import MulticlassMap
from streamcal.multiclass.classes_engine import served_map
from streamcal.quality.groups import Groups, group_figures
from streamcal.quality.reliability import NEEDED, can_draw, reliability_figure
from streamcal.run.config import RunConfig, SegmentsConfig, problems
from streamcal.run.pipeline import Pipeline
from streamcal.run.rows import MapRow, RejectRow
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner
from streamcal.times import show_duration
from streamcal.values import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Backtest", "Comparison", "backtest"]

_SHOWN: Final = 3  # ids

_IN_PYTHON: Final = (
    (r" Nothing was learned from this micro-batch;.*", ""),
    (r"say with --positive VALUE", 'say with columns={"positive": VALUE}'),
    (r"--classes NAME,NAME", 'columns={"classes": […]}'),
    (r"--rejects FILE keeps each with its reason", "The attribute `rejects` has each with its reason"),
    (r"--events and --labels are", "the two frames are"),
    (r"\bline (?=\d)", "row "),
    (r"with --calibration", "as calibration"),
    (r"(?:\ba )?\[recalibrator\] (\w+)", r"option \1"),
    (r"(?:\ba )?\[join\] (\w+)", r'join={"\1": …}'),
)
"""Words of the command line in messages, and what a caller of `backtest` can do."""


_Names = Columns | Mapping[str, Any] | None
_Join = JoinConfig | Mapping[str, Any] | None


@overload
def backtest(
    predictions: Frame,
    labels: Frame | None = None,
    calibration: Frame | None = None,
    *,
    columns: _Names = None,
    join: _Join = None,
    segments: str | Sequence[str] = (),
    modes: None = None,
    **options: Unpack[RecalibratorOptions],
) -> Backtest: ...


@overload
def backtest(
    predictions: Frame,
    labels: Frame | None = None,
    calibration: Frame | None = None,
    *,
    columns: _Names = None,
    join: _Join = None,
    segments: str | Sequence[str] = (),
    modes: Sequence[Mode],
    **options: Unpack[RecalibratorOptions],
) -> Comparison: ...


def backtest(
    predictions: Frame,
    labels: Frame | None = None,
    calibration: Frame | None = None,
    *,
    columns: _Names = None,
    join: _Join = None,
    segments: str | Sequence[str] = (),
    modes: Sequence[Mode] | None = None,
    **options: Unpack[RecalibratorOptions],
) -> Backtest | Comparison:
    """Replay predictions and the labels that came later; return what would have been served.

    Parameters
    ----------
    predictions
        a data frame of pandas, polars or Arrow, a row a prediction: columns ``id`` and ``score``, and, if
        there are any, ``time``, ``key``, ``domain`` and ``label``; others are ignored. A missing value is an
        absent one. Rows may be in any order: those with times are sorted.
    labels
        ``id``, ``label`` and ``time``: when the label was known. A row without a label is left out. None:
        labels are a column of the predictions, known at once.
    calibration
        labelled events of before the deployment, learned first: ``score`` and ``label``.
    columns
        the names of columns that have others: see `streamcal.events.columns.Columns`, as a mapping
        ``{"score": "p", "positive": "yes"}``; it keeps none. With ``{"classes": ["cat", "dog", "fox"]}``, a
        label names a class, and the scores are columns ``p_cat``, ``p_dog`` and ``p_fox``, or with
        another ``prefix``.
    join
        how long predictions and labels wait for each other: a `JoinConfig`, or its options as a mapping.
    segments
        names of columns that make segments, which share one engine: see `SegmentedRecalibrator`.
    modes
        modes to compare: a replay of each, and a `Comparison` of them all. None: one replay.
    **options
        the options of `RecalibratorConfig` by name.

    Raises
    ------
    ImportError
        if narwhals is not installed.
    TypeError
        if what is given is no data frame.
    ValueError
        if a column that is needed is not there, an option is unknown or wrong, labels or scores do not mean
        what they would be taken for, every prediction is rejected, or no label meets its prediction.

    Warns
    -----
    UserWarning
        for each of `Backtest.remarks`.

    Examples
    --------
    >>> import polars as pl
    >>> scores = [0.1, 0.2, 0.8, 0.9]
    >>> predictions = pl.DataFrame({"id": ["a", "b", "c", "d"], "score": scores, "time": [0, 1, 2, 3]})
    >>> labels = pl.DataFrame({"id": ["a", "c"], "label": [0, 1], "time": [2, 4]})
    >>> done = backtest(predictions, labels)
    >>> done.frame.columns
    ['id', 'score', 'time', 'probability', 'map_version', 'weight_0', 'weight_1']
    >>> done.summary["join"]["joined"]
    2
    """
    if modes is None:
        done = _replayed(predictions, labels, calibration, columns, join, segments, dict(options))
        for remark in done.remarks:
            warnings.warn(remark, UserWarning, stacklevel=2)
        return done
    if isinstance(modes, str) or not modes or "mode" in options:
        raise ValueError(f"modes must be a list of modes, and mode is then left out, got {shown(modes)}")
    found: dict[str, Backtest] = {
        mode: _replayed(predictions, labels, calibration, columns, join, segments, {**options, "mode": mode})
        for mode in modes
    }
    for remark in dict.fromkeys(remark for each in found.values() for remark in each.remarks):
        warnings.warn(remark, UserWarning, stacklevel=2)
    return Comparison(found)


def _replayed(
    predictions: Frame,
    labels: Frame | None,
    calibration: Frame | None,
    columns: _Names,
    join: _Join,
    segments: str | Sequence[str],
    options: Mapping[str, Any],
) -> Backtest:
    """Replay once; parameters and errors are those of `backtest`."""
    names = columns if isinstance(columns, Columns) else _validated(Columns, dict(columns or {}))
    names = names.model_copy(update={"keep": ()})
    config: RecalibratorConfig = _validated(RecalibratorConfig, options)
    joining = join if join is None or isinstance(join, JoinConfig) else _validated(JoinConfig, dict(join))
    chosen = _validated(SegmentsConfig, {"fields": (segments,) if isinstance(segments, str) else segments})
    try:
        whole = RunConfig(recalibrator=config, join=joining or JoinConfig(), columns=names, segments=chosen)
    except ValidationError as error:
        raise ValueError(problems(error, RunConfig)) from None
    names = whole.columns
    pipeline = Pipeline(config, joining, columns=names, segments=chosen)
    for groups in (pipeline.quality.groups, *pipeline.quality.segments.values()):
        groups.kept = None
    kept: dict[str, _Rows] = {kind: _Rows(kind) for kind in ("answers", "rejects", "maps")}
    before = [] if calibration is None else [FrameSource(calibration, "calibration", names)]
    of_predictions = FrameSource(predictions, "events", names)
    deployment = [of_predictions]
    if labels is not None:
        deployment.append(FrameSource(labels, "labels", names))
        if "label" in of_predictions.roles:
            raise ValueError(
                f"predictions have labels of their own, in column {shown(of_predictions.roles['label'])},"
                " which would be known at once, and labels are given, too: drop that column, or give no"
                " labels"
            )
        _check_times(*deployment)
    outputs = Outputs(kept["answers"], kept["rejects"], kept["maps"])
    try:
        Runner(pipeline, Inputs(before, deployment), outputs, None, clock=lambda: 0.0).run()
    except MeaningError as error:
        raise ValueError(_in_python(str(error))) from None
    status = build_status(pipeline, (*before, *deployment), claims=False)
    _check_outcome(status, kept["rejects"].rows, deployment)
    every_reject = of_rejects(status, 0.0)  # in a stream a few are nothing; here, each can be mended
    remarks = [_in_python(remark) for remark in dict.fromkeys([*every_reject, *status.warnings])]
    if labels is None and calibration is None and "label" not in of_predictions.roles:
        remarks.append(
            "No labels were given, so nothing is learned. Give a frame of labels, or a column of the"
            " predictions."
        )
    remarks += [
        f"{each.untimed:,} of {len(each):,} rows of {each.name} have no time: each counts at the time of the"
        " row before it."
        for each in deployment
        if each.untimed
    ]
    if labels is not None and "time" not in of_predictions.roles:
        remarks.append(
            "No times are known, so all predictions were answered before the first label came. Give both"
            " frames a column of times, or give labels that are known at once as a column of the predictions."
        )
    return Backtest(
        pipeline,
        of_predictions,
        status,
        kept["answers"].rows,
        kept["rejects"].rows,
        kept["maps"].rows,
        remarks,
    )


@dataclass(frozen=True, repr=False)
class Backtest:
    """Results of a replay."""

    _pipeline: Pipeline
    _predictions: FrameSource
    _status: Status
    _answers: Sequence[Any]
    rejects: Sequence[RejectRow]
    """Rejected rows, and why; a ``line`` is the number of the row, from 1."""
    _maps: Sequence[MapRow]
    remarks: Sequence[str]
    """Remarks of a careful colleague, each with what to do about it."""

    def __repr__(self) -> str:
        return "\n".join([*self._lines, *_as_text(self._rows)])

    def _repr_html_(self) -> str:
        return f"<p>{'<br>'.join(map(escape, self._lines))}</p>{_as_html(self._rows)}"

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return [("", "before", "after"), *rating_rows(self._status.quality, self._status.classes)]

    @property
    def _lines(self) -> list[str]:
        """Lines above the table."""
        counts = self._status.join
        return [
            self._status.verdict.sentence,
            f"{counts.predictions:,} predictions, {counts.joined + counts.implied:,} with a label;"
            f" {self._status.rejected:,} events rejected",
        ]

    @cached_property
    def frame(self) -> Frame:
        """The answers, a frame of the library that the predictions came in; in the order of their times.

        First the columns of the predictions that were read, under their names, with their types and index;
        then ``probability``, ``map_version``, ``weight_0`` and ``weight_1`` (of the shift correction); of
        many classes ``probability_cat`` and so on, and ``map_version``. If a name is taken, ``_served`` is
        added to it.
        """
        narwhals = narwhals_module()
        given = self._predictions.answered(self._answers)
        made: dict[str, Any] = {"map_version": np.array([row.map_version for row in self._answers], np.int64)}
        if classes := self._pipeline.classes:
            columns = zip(*(row.probabilities.values() for row in self._answers), strict=True)
            names = [f"probability_{name}" for name in classes]
            made = dict(zip(names, map(np.array, columns), strict=True)) | made
        else:
            made = {
                "probability": np.array([row.probability for row in self._answers], np.float64),
                **made,
                "weight_0": np.array([row.weights[0] for row in self._answers], np.float64),
                "weight_1": np.array([row.weights[1] for row in self._answers], np.float64),
            }
        library, taken = narwhals.get_native_namespace(given), set(given.columns)
        named = {f"{name}_served" if name in taken else name: values for name, values in made.items()}
        series = [narwhals.new_series(name, values, backend=library) for name, values in named.items()]
        return given.with_columns(*series).to_native()

    @cached_property
    def by_segment(self) -> Frame:
        """Figures of each segment by its labels, the worst first: a frame of the caller's library.

        Columns ``field``, ``segment`` (missing: no value), ``labels``, ``forecast`` (mean of what was
        served), ``rate`` (of label 1), ``gap`` (their difference), ``gap_low`` and ``gap_high`` (confidence
        sequence of each segment alone, 95 %), ``brier_before``, ``brier_after`` and ``deviates``: the gap is
        surely more than a tenth of the rarer class. Of the segments found so, at most one in twenty is wrong
        on average. With many classes, the field is ``class``: each class against the others.

        Raises
        ------
        ValueError
            if no segments were asked for.
        """
        if not (self._pipeline.segments.fields or self._pipeline.classes):
            raise ValueError("there are no segments: name columns with segments=…")
        return self._framed("segment", self._pipeline.quality.segments)

    @cached_property
    def by_key(self) -> Frame:
        """Figures of each key, the worst first: ``key``, then as in `by_segment`. Weights do not count."""
        return self._framed("key", {"": self._pipeline.quality.groups})

    def _framed(self, name: str, by_field: Mapping[str, Groups]) -> Frame:
        narwhals = narwhals_module()
        library = narwhals.get_native_namespace(self._predictions.answered(self._answers))
        figures = group_figures(np.concatenate([groups.sums for groups in by_field.values()]))
        order = figures.worst_first
        fields = [field for field, groups in by_field.items() for _ in range(len(groups))]
        names = [each for groups in by_field.values() for each in groups.names]
        made: dict[str, Any] = {"field": [fields[at] for at in order]} if name == "segment" else {}
        made[name] = [names[at] for at in order]
        renamed = {"low": "gap_low", "high": "gap_high"}
        made |= {renamed.get(column, column): each[order] for column, each in figures._asdict().items()}
        made["labels"] = made["labels"].astype(np.int64)
        series = [narwhals.new_series(column, values, backend=library) for column, values in made.items()]
        return series[0].to_frame().with_columns(*series[1:]).to_native()

    @property
    def summary(self) -> dict[str, Any]:
        """The figures of the run: what the join counted, and how good scores and probabilities were."""
        return run_summary(self._status) | {"remarks": list(self.remarks)}

    @property
    def maps(self) -> list[RecalibrationMap | MulticlassMap]:
        """The map versions that were served, in order; of many classes the last map of each key alone."""
        if self._pipeline.classes:
            return [served_map(engine) for engine in self._pipeline.engines.values()]
        return [RecalibrationMap.model_validate_json(bytes(row.map)) for row in self._maps]

    @property
    def certificates(self) -> list[Certificate]:
        """Certificates of the versions that have one, in order."""
        texts = [bytes(row.certificate) for row in self._maps]
        return [Certificate.model_validate_json(text) for text in texts if text != b"null"]

    def plot(self) -> Figure:
        """Draw the reliability of scores and of recalibrated probabilities, by the labels that came.

        Raises
        ------
        ImportError
            if matplotlib is not installed.
        ValueError
            if no label has met its prediction.
        """
        if not can_draw():
            raise ImportError(NEEDED)
        if not self._pipeline.join.counts.joined:
            raise ValueError("there is nothing to draw: no label has met its prediction")
        return reliability_figure(self._pipeline.quality)


def _validated(model: Any, given: Mapping[str, Any]) -> Any:
    """Return the options of a model; what is wrong is said as of a file of options, with what was meant."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise ValueError(problems(error, model)) from None


def _check_times(predictions: FrameSource, labels: FrameSource) -> None:
    """Refuse two frames of which only one has times: the order of events would be a guess."""
    timed, untimed = (labels, predictions) if "time" in labels.roles else (predictions, labels)
    if ("time" in timed.roles) == ("time" in untimed.roles):
        return
    meant = [name for name in untimed.columns if did_you_mean(name) == "time"]
    name = shown(meant[0]) if meant else "NAME"
    mapped = f'{{"labels": {{"time": {name}}}}}' if untimed is labels else f'{{"time": {name}}}'
    raise ValueError(
        f"{timed.name} have times and {untimed.name} have none, so nobody knows which labels a prediction"
        f" could rest on. Name the column with columns={mapped}; {untimed.name} has the columns"
        f" {', '.join(map(shown, untimed.columns))}"
    )


def _check_outcome(status: Status, rejects: Sequence[RejectRow], sources: Sequence[FrameSource]) -> None:
    """Refuse a run in which nothing was answered, or no label met its prediction."""
    counts, (predictions, *others) = status.join, sources
    for source, taken in zip(sources, (counts.predictions, counts.labels), strict=False):
        if not taken:
            first = next(row.reason for row in rejects if row.source == source.name)
            raise ValueError(
                f"all {len(source):,} rows of {source.name} were rejected, the first for: {_in_python(first)}"
            )
    if not others or counts.joined + counts.implied:
        return
    if "time" in predictions.roles:
        made, came = predictions.moments(), others[0].moments()
        delays = sorted(came[each] - made[each] for each in made.keys() & came.keys())
        if delays and delays[-1] > 0.0:
            days = math.ceil(delays[-1] / 86_400.0)
            raise ValueError(
                f"none of the {counts.labels:,} labels came in time: half of them come more than"
                f" {show_duration(delays[len(delays) // 2])} after their prediction. Let predictions wait"
                f' longer (30 days if not given): join={{"label_ttl": "P{days}D"}} is enough for all'
            )
    ids = [", ".join(each.ids(_SHOWN)) for each in (predictions, *others)]
    raise ValueError(
        f"none of the {counts.labels:,} labels met one of the {counts.predictions:,} predictions."
        f" Predictions have ids such as {ids[0]}, labels {ids[1]}. Have both the same ids, and does each"
        ' label come after its prediction, within join={"label_ttl": …}?'
    )


def _in_python(words: str) -> str:
    """Return a message of a run in the words of a caller."""
    for pattern, ours in _IN_PYTHON:
        words = re.sub(pattern, ours, words)
    return words


class Comparison(Mapping[str, Backtest]):
    """Backtests of several modes over the same frames, by mode; shown as a table of their figures."""

    def __init__(self, found: Mapping[str, Backtest]) -> None:
        self._found = dict(found)

    def __getitem__(self, mode: str) -> Backtest:
        return self._found[mode]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return "\n".join(_as_text(self._rows))

    def _repr_html_(self) -> str:
        return _as_html(self._rows)

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        """Rows of the table: names of the columns; the scores as they came; each mode."""
        columns = [rating_rows(each._status.quality, each._status.classes) for each in self._found.values()]
        names, before = zip(*((name.strip(), old) for name, old, _ in columns[0]), strict=True)
        after = [(mode, *(new for *_, new in rows)) for mode, rows in zip(self, columns, strict=True)]
        return [("", *names), ("score", *before), *after]


def _as_text(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _as_html(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in HTML."""
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


class _Rows(NullSink):
    """Keeps the rows of a sink."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Any] = []

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Keep rows."""
        self.rows.extend(rows)

"""Backtests for notebooks: a whole run over data frames, of pandas, polars or Arrow, as if it had been live.

The rules are those of ``streamcal run``: events are put in the order of their times, labels meet predictions
by id, every prediction is answered by the map of its moment, and what cannot be taken is rejected. Needs
narwhals (extra ``frames``), and matplotlib (extra ``plots``) to draw.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, Final, Unpack

from pydantic import ValidationError

from streamcal.base.times import duration, show_duration
from streamcal.base.values import shown
from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions
from streamcal.events.columns import Columns
from streamcal.events.faces import PYTHON
from streamcal.events.input_checks import MeaningError
from streamcal.frames.results import Answered, Backtest
from streamcal.frames.sources import ROW, Frame, FrameSource, apart
from streamcal.join.config import JoinConfig
from streamcal.monitor.build import build_status
from streamcal.monitor.remarks import of_rejects, remark
from streamcal.monitor.run_history import Thinned
from streamcal.monitor.status import Status
from streamcal.run.config import DecisionConfig, RunConfig, SamplingConfig, SegmentsConfig, problems
from streamcal.run.outcome import Outcome
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.rows import RejectRow, Version
from streamcal.run.runner import Inputs, Runner

_SHOWN: Final = 3  # ids
_MOST_MAPS: Final = 1000

_Names = Columns | Mapping[str, Any] | None
_Join = JoinConfig | Mapping[str, Any] | None
_Decision = DecisionConfig | Mapping[str, Any] | None
_Sampling = SamplingConfig | Mapping[str, Any] | None


def backtest(
    predictions: Frame,
    labels: Frame | None = None,
    calibration: Frame | None = None,
    *,
    label_time: str | None = None,
    label_delay: timedelta | str | None = None,
    columns: _Names = None,
    join: _Join = None,
    segments: str | Sequence[str] = (),
    decision: _Decision = None,
    sampling: _Sampling = None,
    **options: Unpack[RecalibratorOptions],
) -> Backtest:
    """Replay predictions and the labels that came later; return what would have been served.

    Parameters
    ----------
    predictions
        a data frame of pandas, polars or Arrow, which may be lazy, a row a prediction: columns ``id`` and
        ``score``, and, if there are any, ``time``, ``key``, ``domain`` and ``label``; others are ignored. A
        missing value is an absent one. Rows may be in any order: those with times are sorted. An index of
        pandas with the name of such a column is one; an index of texts without a name is the id.
    labels
        ``id``, ``label`` and ``time``: when the label was known. A row without a label is left out. None:
        labels are a column of the predictions, known at once; ids may then be left out.
    calibration
        labelled events of before the deployment, learned first: ``score`` and ``label``.
    label_time
        column of the predictions that says when the label of the same row was known; not with ``labels``.
    label_delay
        time after which the label of the same row is known, a duration such as ``"2d"`` or ``"PT6H"``: a
        simulation, where nobody noted when labels came.
    columns
        the names of columns that have others: see `streamcal.events.columns.Columns`, as a mapping
        ``{"score": "p", "positive": "yes"}``; it keeps none. With ``{"classes": ["cat", "dog", "fox"]}``, a
        label names a class, and the scores are columns ``p_cat``, ``p_dog`` and ``p_fox``, or with
        another ``prefix``.
    join
        how long predictions and labels wait for each other: a `JoinConfig`, or its options as a mapping.
    segments
        names of columns that make segments, which share one engine: see `Recalibrator`.
    decision
        costs or a capacity, by which each prediction is decided: the options of ``[decision]`` as a mapping,
        such as ``{"false_positive": 1, "false_negative": 20}``. None: nothing is decided.
    sampling
        a budget of labels, such as ``{"share": 0.03}``: the options of ``[sampling]`` as a mapping. Labels
        that it would not have asked for are rejected. None: all labels are taken.
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
        for each remark of the result.

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
    if isinstance(columns, Mapping) and "label_time" in columns:
        columns, label_time = {**columns}, label_time or columns["label_time"]
        del columns["label_time"]
    if label_time is not None or label_delay is not None:
        if labels is not None or None not in (label_time, label_delay):
            raise ValueError("give one of labels, label_time and label_delay")
        names = _validated(Columns, columns)
        if label_time is not None:
            columns = names.model_copy(update={"labels": {"time": label_time}})
        delay = duration("label_delay", label_delay or timedelta())
        predictions, labels = apart(predictions, names, label_time, delay)
    if of_columns := [name for name in options if name in Columns.model_fields]:
        raise ValueError(f"{of_columns[0]} is one of columns: columns={{{of_columns[0]!r}: …}}")
    done = _replayed(predictions, labels, calibration, columns, join, segments, decision, sampling, options)
    for words in done.remarks:
        warnings.warn(words, UserWarning, stacklevel=2)
    return done


def _replayed(
    predictions: Frame,
    labels: Frame | None,
    calibration: Frame | None,
    columns: _Names,
    join: _Join,
    segments: str | Sequence[str],
    decision: _Decision,
    sampling: _Sampling,
    options: Mapping[str, Any],
) -> Backtest:
    """Replay once; parameters and errors are those of `backtest`."""
    fields = (segments,) if isinstance(segments, str) else segments
    tables: dict[str, Any] = {
        "recalibrator": _validated(RecalibratorConfig, options),
        "columns": _validated(Columns, columns).model_copy(update={"keep": (ROW,)}),
        "join": _validated(JoinConfig, join),
        "segments": _validated(SegmentsConfig, {"fields": fields}),
        "decision": _validated(DecisionConfig, decision),
        "sampling": _validated(SamplingConfig, sampling),
    }
    try:
        whole = RunConfig(**tables)
    except ValidationError as error:
        raise ValueError(problems(error, RunConfig)) from None
    pipeline, names = Pipeline(whole), whole.columns
    for groups in (pipeline.quality.groups, *pipeline.quality.segments.values()):
        groups.kept = None
    rejects, versions, certificates = list[RejectRow](), Thinned[Version](_MOST_MAPS), list[bytes]()
    before = [] if calibration is None else [FrameSource(calibration, "calibration", names)]
    of_predictions = FrameSource(predictions, "events", names, alone=labels is None)
    deployment = [of_predictions]
    if labels is not None:
        deployment.append(FrameSource(labels, "labels", names))
        if "label" in of_predictions.roles:
            raise ValueError(
                f"predictions have labels of their own, in column {shown(of_predictions.roles['label'])},"
                " which would be known at once, and labels are given, too: drop that column, or give no"
                " labels"
            )
    answers = Answered(of_predictions)

    def note(outcome: Outcome, _: float) -> None:
        rejects.extend(outcome.rejects)
        for version in outcome.versions:
            versions.add(version)
            if (text := bytes(version.row.certificate)) != b"null":
                certificates.append(text)

    inputs, outputs = Inputs(before, deployment), Outputs(answers)
    try:
        Runner(pipeline, inputs, outputs, None, clock=lambda: 0.0, after=note).run()
    except MeaningError as error:
        raise ValueError(error.words(PYTHON)) from None
    status = build_status(pipeline, (*before, *deployment), claims=False, face=PYTHON)
    _check_outcome(status, rejects, deployment, pipeline.join.config.label_ttl)
    found = [*of_rejects(status, PYTHON), *status.remarks]  # in a stream a few rejects are nothing
    if labels is None and calibration is None and "label" not in of_predictions.roles:
        found.append(remark("no_labels", {}, PYTHON))
    if labels is not None and "time" not in of_predictions.roles:
        found.append(remark("no_times", {}, PYTHON))
    remarks = [*dict.fromkeys(each.words for each in found)]
    return Backtest(pipeline, status, answers, rejects, versions, certificates, remarks)


def _validated(model: Any, given: Any) -> Any:
    """Return the options of a model; what is wrong is said as of a file of options, with what was meant."""
    if given is not None and not isinstance(given, model | Mapping):
        raise TypeError(
            f"{model.__name__} must be a mapping of its options, such as {{…}}, got {shown(given)}"
        )
    try:
        return model.model_validate(given if isinstance(given, model) else dict(given or {}))
    except ValidationError as error:
        raise ValueError(problems(error, model)) from None


def _check_outcome(
    status: Status, rejects: Sequence[RejectRow], sources: Sequence[FrameSource], label_ttl: float
) -> None:
    """Refuse a run in which nothing was answered, or few labels met their prediction."""
    counts, (predictions, *others) = status.join, sources
    for source, taken in zip(sources, (counts.predictions, counts.labels), strict=False):
        if not taken:
            first = next(row.reason for row in rejects if row.source == source.name)
            raise ValueError(
                f"all {len(source):,} rows of {source.name} were rejected, the first for: {first}"
            )
    met = counts.joined + counts.implied
    if not others or 10 * met > counts.labels:
        return
    if "time" in predictions.roles:
        made, came = predictions.moments(), others[0].moments()
        delays = sorted(came[each] - made[each] for each in made.keys() & came.keys())
        if delays and delays[len(delays) // 2] > label_ttl:
            days = math.ceil(delays[-1] / 86_400.0)
            raise ValueError(
                f"{met} of the {counts.labels:,} labels came in time: half of them come more than"
                f" {show_duration(delays[len(delays) // 2])} after their prediction. Let predictions wait"
                f' longer (30 days if not given): join={{"label_ttl": "P{days}D"}} is enough for all'
            )
    if met:
        return
    ids = [", ".join(map(shown, islice(each.ids(), _SHOWN))) for each in (predictions, *others)]
    raise ValueError(
        f"none of the {counts.labels:,} labels met one of the {counts.predictions:,} predictions."
        f" Predictions have ids such as {ids[0]}, labels {ids[1]}. Have both the same ids, and does each"
        ' label come after its prediction, within join={"label_ttl": …}?'
    )

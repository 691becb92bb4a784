"""Backtests for notebooks: a whole run over data frames, of pandas, polars or Arrow, as if it had been live.

The rules are those of ``streamcal run``: events are put in the order of their times, labels meet predictions
by id, every prediction is answered by the map of its moment, and what cannot be taken is rejected. Needs
narwhals (extra ``frames``), and matplotlib (extra ``plots``) to draw.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec
import numpy as np
from pydantic import ValidationError

from streamcal.certificates.record import Certificate
from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions
from streamcal.engine.emissions import Recalibrated
from streamcal.events.columns import Columns, did_you_mean
from streamcal.events.input_checks import MeaningError
from streamcal.frames.sources import Frame, FrameSource, narwhals_module
from streamcal.join.join_c import JoinConfig
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.monitor.build import build_status
from streamcal.monitor.status import Status
from streamcal.monitor.summary import quality_rows, run_summary
from streamcal.quality.reliability import NEEDED, can_draw, reliability_figure
from streamcal.run.config import problems
from streamcal.run.pipeline import Pipeline
from streamcal.run.rows import MapRow, RejectRow
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner
from streamcal.values import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Backtest", "backtest"]

_SHOWN: Final = 3  # ids

_IN_PYTHON: Final = (
    (r" Nothing was learned from this micro-batch;.*", ""),
    (r"say with --positive VALUE", 'say with columns={"positive": VALUE}'),
    (r"--rejects FILE keeps each with its reason", "The attribute `rejects` has each with its reason"),
    (r"--events and --labels are", "the two frames are"),
    (r"with --calibration", "as calibration"),
    (r"Sort the files by time", "Sort the frames by time"),
    (r"(, the deployment's)? in their file:", " in their frame:"),
    (r"(?:\ba )?\[(recalibrator|join)\] (\w+)", r"option \2"),
)
"""Words of the command line in messages, and what a caller of `backtest` can do."""


def backtest(
    predictions: Frame,
    labels: Frame | None = None,
    calibration: Frame | None = None,
    *,
    columns: Columns | Mapping[str, Any] | None = None,
    join: JoinConfig | Mapping[str, Any] | None = None,
    **options: Unpack[RecalibratorOptions],
) -> Backtest:
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
        ``{"score": "p", "positive": "yes"}``; it keeps none.
    join
        how long predictions and labels wait for each other: a `JoinConfig`, or its options as a mapping.
    **options
        the options of `RecalibratorConfig` by name.

    Raises
    ------
    ImportError
        if narwhals is not installed.
    TypeError
        if what is given is no data frame, or an option is unknown.
    ValueError
        if a column that is needed is not there, an option is wrong, labels or scores do not mean what they
        would be taken for, every prediction is rejected, or no label meets its prediction.

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
    names = columns if isinstance(columns, Columns) else _validated(Columns, dict(columns or {}))
    names = names.model_copy(update={"keep": ()})
    config: RecalibratorConfig = _validated(RecalibratorConfig, dict(options))
    joining = join if join is None or isinstance(join, JoinConfig) else _validated(JoinConfig, dict(join))
    pipeline = Pipeline(config, joining, columns=names)
    kept: dict[str, _Rows] = {kind: _Rows(kind) for kind in ("answers", "rejects", "maps")}
    before = [] if calibration is None else [FrameSource(calibration, "calibration", names)]
    of_predictions = FrameSource(predictions, "events", names)
    deployment = [of_predictions]
    if labels is not None:
        deployment.append(FrameSource(labels, "labels", names))
        _check_times(*deployment)
    outputs = Outputs(kept["answers"], kept["rejects"], kept["maps"])
    try:
        Runner(pipeline, Inputs(before, deployment), outputs, None, clock=lambda: 0.0).run()
    except MeaningError as error:
        raise ValueError(_in_python(str(error))) from None
    status = build_status(pipeline, (*before, *deployment), claims=False)
    _check_outcome(status, kept["rejects"].rows, deployment)
    remarks = [_in_python(remark) for remark in status.warnings]
    if labels is not None and "time" not in of_predictions.roles:
        remarks.append(
            "No times are known, so all predictions were answered before the first label came. Give both"
            " frames a column of times, or give labels that are known at once as a column of the predictions."
        )
    done = Backtest(
        pipeline,
        of_predictions,
        status,
        kept["answers"].rows,
        kept["rejects"].rows,
        kept["maps"].rows,
        remarks,
    )
    for remark in done.remarks:
        warnings.warn(remark, UserWarning, stacklevel=2)
    return done


@dataclass(frozen=True, repr=False)
class Backtest:
    """Results of a replay."""

    _pipeline: Pipeline
    _predictions: FrameSource
    _status: Status
    _answers: Sequence[Recalibrated]
    rejects: Sequence[RejectRow]
    """Rejected rows, and why; a ``line`` is the number of the row, from 1."""
    _maps: Sequence[MapRow]
    remarks: Sequence[str]
    """Remarks of a careful colleague, each with what to do about it."""

    def __repr__(self) -> str:
        rows = [("", "before", "after"), *quality_rows(self._status.quality)]
        width = max(len(name) for name, *_ in rows)
        return "\n".join(
            [*self._lines, *(f"{name:{width}}  {old:>9}  {new:>9}".rstrip() for name, old, new in rows)]
        )

    def _repr_html_(self) -> str:
        rows = [("", "before", "after"), *quality_rows(self._status.quality)]
        cells = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(old)}</td><td>{escape(new)}</td></tr>"
            for name, old, new in rows
        )
        return f"<p>{'<br>'.join(map(escape, self._lines))}</p><table>{cells}</table>"

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
        then ``probability``, ``map_version``, ``weight_0`` and ``weight_1`` (of the shift correction). If a
        name is taken, ``_served`` is added to it.
        """
        narwhals = narwhals_module()
        given = self._predictions.answered(self._answers)
        made = {
            "probability": np.array([row.probability for row in self._answers], np.float64),
            "map_version": np.array([row.map_version for row in self._answers], np.int64),
            "weight_0": np.array([row.weights[0] for row in self._answers], np.float64),
            "weight_1": np.array([row.weights[1] for row in self._answers], np.float64),
        }
        library, taken = narwhals.get_native_namespace(given), set(given.columns)
        named = {f"{name}_served" if name in taken else name: values for name, values in made.items()}
        series = [narwhals.new_series(name, values, backend=library) for name, values in named.items()]
        return given.with_columns(*series).to_native()

    @property
    def summary(self) -> dict[str, Any]:
        """The figures of the run: what the join counted, and how good scores and probabilities were."""
        return run_summary(self._status) | {"remarks": list(self.remarks)}

    @property
    def maps(self) -> list[RecalibrationMap]:
        """The map versions that were served, in order."""
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
    if len(predictions) and not counts.predictions:
        first = next(row.reason for row in rejects if row.source == predictions.name)
        raise ValueError(
            f"all {len(predictions):,} rows of predictions were rejected, the first for: {_in_python(first)}"
        )
    if others and counts.labels and not counts.joined + counts.implied and not counts.late:
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


class _Rows(NullSink):
    """Keeps the rows of a sink."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Any] = []

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Keep rows."""
        self.rows.extend(rows)

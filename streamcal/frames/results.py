"""Results of a backtest: frames of the library of the caller, figures as a table, maps and certificates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from streamcal.certificates.record import Certificate
from streamcal.engine.multiclass.class_map import MulticlassMap
from streamcal.frames.sources import ROW, Frame, FrameSource, narwhals_module
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.monitor.rows import rating_rows, run_summary
from streamcal.monitor.run_history import Thinned
from streamcal.monitor.status import Status
from streamcal.quality.diagram import Scale, draw, draw_panels
from streamcal.quality.groups import Groups, ranked
from streamcal.run.outputs import NullSink
from streamcal.run.pipeline import Pipeline
from streamcal.run.rows import RejectRow, Version

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Answered(NullSink):
    """Answers to the predictions of a frame, as columns."""

    name = "answers"

    def __init__(self, predictions: FrameSource) -> None:
        self.predictions = predictions
        self.columns: dict[str, Any] = {}
        """Columns that `Kind.columns` gives, each with room for an answer to every row."""
        self._count = 0

    def write(self, rows: Any) -> None:
        """Put the answers of a micro-batch into columns."""
        start, self._count = self._count, self._count + len(rows)
        for name, values in self.predictions.kind.columns(rows).items() if rows else ():
            if name not in self.columns:
                self.columns[name] = np.empty(len(self.predictions), values.dtype)
            self.columns[name][start : self._count] = values

    def column(self, name: str) -> Any:
        """Return a column of the answers."""
        return self.columns[name][: self._count]


@dataclass(frozen=True, repr=False)
class Backtest:
    """Results of a replay."""

    _pipeline: Pipeline
    _status: Status
    _answers: Answered
    rejects: Sequence[RejectRow]
    """Rejected rows, and why; a ``line`` is the number of the row, from 1."""
    _versions: Thinned[Version]
    _certificates: Sequence[bytes]
    remarks: Sequence[str]
    """Remarks of a careful colleague, each with what to do about it."""

    def __repr__(self) -> str:
        return "\n".join([*self._lines, *_as_text(self._rows)])

    def _repr_html_(self) -> str:
        return f"<p>{'<br>'.join(map(escape, self._lines))}</p>{_as_html(self._rows)}"

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return [("", "before", "after"), *rating_rows(self._status)]

    @property
    def _lines(self) -> list[str]:
        """Lines above the table."""
        counts = self._status.join
        return [
            f"{self._status.verdict.sentence} {self._status.verdict.evidence}".rstrip(),
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
        answers = self._answers
        given = answers.predictions.at(answers.column(ROW)).drop(ROW)
        library, taken = narwhals.get_native_namespace(given), set(given.columns)
        named = {
            f"{name}_served" if name in taken else name: answers.column(name)
            for name in answers.columns
            if name != ROW
        }
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
        if not self._pipeline.quality.segments:
            raise ValueError("there are no segments: name columns with segments=…")
        return self._framed("segment", self._pipeline.quality.segments)

    @cached_property
    def by_key(self) -> Frame:
        """Figures of each key, the worst first: ``key``, then as in `by_segment`. Weights do not count."""
        return self._framed("key", {"": self._pipeline.quality.groups})

    @cached_property
    def rejected(self) -> Frame:
        """Rejected rows, and why: a frame of the caller's library with the columns of `rejects`."""
        names = RejectRow.__struct_fields__
        return self._made({name: [getattr(row, name) for row in self.rejects] for name in names})

    def _framed(self, name: str, by_field: Mapping[str, Groups]) -> Frame:
        named, figures = ranked(by_field)
        made: dict[str, Any] = {"field": [field for field, _ in named]} if name == "segment" else {}
        made[name] = [each for _, each in named]
        renamed = {"low": "gap_low", "high": "gap_high"}
        made |= {renamed.get(column, column): values for column, values in figures._asdict().items()}
        made["labels"] = made["labels"].astype(np.int64)
        return self._made(made)

    def _made(self, made: Mapping[str, Any]) -> Frame:
        """Return columns as a frame of the caller's library."""
        narwhals = narwhals_module()
        library = narwhals.get_native_namespace(self._answers.predictions.rows)
        series = [narwhals.new_series(column, values, backend=library) for column, values in made.items()]
        return series[0].to_frame().with_columns(*series[1:]).to_native()

    @property
    def summary(self) -> dict[str, Any]:
        """The figures of the run: what the join counted, and how good scores and probabilities were."""
        return run_summary(self._status) | {"remarks": list(self.remarks)}

    @property
    def maps(self) -> list[RecalibrationMap | MulticlassMap]:
        """The map versions that were served, in order: at most 1,000, ever fewer of the older ones.

        Of many classes, or many keys, the last map of each key alone.
        """
        engines = self._pipeline.engines
        if not self._pipeline.kind.has_maps or len(engines) > 1:
            return [engine.portable_map for engine in engines.values()]
        return [version.published.map for version in self._versions.values]

    @property
    def certificates(self) -> list[Certificate]:
        """Certificates of the versions that have one, in order."""
        return [*map(Certificate.model_validate_json, self._certificates)]

    @overload
    def plot(self, ax: None = None, *, scale: Scale | None = None) -> Figure: ...
    @overload
    def plot(self, ax: Axes, *, scale: Scale | None = None) -> Axes: ...
    def plot(self, ax: Axes | None = None, *, scale: Scale | None = None) -> Figure | Axes:
        """Draw the reliability of scores and of recalibrated probabilities, by the labels that came.

        Parameters
        ----------
        ax
            axes to draw on; None: a new figure of pyplot.
        scale
            ``"linear"`` or ``"logit"``, log-odds; None: logit if most forecasts are below 0.02 or above 0.98.

        Returns
        -------
        The new figure, which a notebook shows and ``pyplot.show()`` opens; or the axes that were passed.

        Raises
        ------
        ImportError
            if matplotlib is not installed.
        ValueError
            if no label has met its prediction.
        """
        if not self._pipeline.join.counts.joined:
            raise ValueError("there is nothing to draw: no label has met its prediction")
        if ax is not None:
            draw(ax, self._pipeline.quality.series, scale)
            return ax
        return draw_panels([self._pipeline.quality.series], scale)


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

"""Backtests for notebooks: a whole run over data frames, of pandas, polars or Arrow, as if it had been live.

The rules are those of ``streamcal run``: events are put in the order of their times, labels meet predictions
by id, every prediction is answered by the map of its moment, and what cannot be taken is rejected. Needs
narwhals (extra ``frames``), and matplotlib (extra ``plots``) to draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec
import numpy as np

from streamcal.certificates.record import Certificate
from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions
from streamcal.engine.emissions import Recalibrated
from streamcal.events import Domain, Event, Origin
from streamcal.events.columns import WEIGHTS, Columns, InputKind, Role, did_you_mean
from streamcal.events.fields import Malformed
from streamcal.events.table_codec import RowsDecoder
from streamcal.join.join_c import JoinConfig
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.monitor.build import build_status
from streamcal.monitor.summary import run_summary
from streamcal.quality.reliability import NEEDED, can_draw, reliability_figure
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Position, Positions
from streamcal.run.rows import MapRow, RejectRow
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner
from streamcal.times import as_times
from streamcal.values import Floats, shown

if TYPE_CHECKING:
    import narwhals as nw
    from matplotlib.figure import Figure

__all__ = ["Backtest", "backtest"]

_ROWS: Final = 65_536  # of a frame that are read at a time
_TYPES: Final = {"score": ({float},), "time": ({float}, {str}), "label": ({bool, int, float, str},)}
"""Types of the values that `RowsDecoder` takes as a column, by role; those of other roles are text."""

Frame = Any
"""A data frame of a library that narwhals knows."""


def backtest(
    predictions: Frame,
    labels: Frame | None = None,
    calibration: Frame | None = None,
    *,
    columns: Columns | Mapping[str, Any] | None = None,
    join: JoinConfig | None = None,
    **options: Unpack[RecalibratorOptions],
) -> Backtest:
    """Replay predictions and the labels that came later; return what would have been served.

    Parameters
    ----------
    predictions
        a data frame of pandas, polars or Arrow, a row a prediction: columns ``id`` and ``score``, and, if
        there are any, ``time``, ``key``, ``domain`` and ``label``; others are ignored. A missing value is an
        absent one.
    labels
        ``id``, ``label`` and, if there is one, ``time``: when the label was known. None: labels are a column
        of the predictions, known at once.
    calibration
        labelled events of before the deployment, learned first: ``score`` and ``label``.
    columns
        the names of columns that have others: see `streamcal.events.columns.Columns`, as a mapping
        ``{"score": "p", "positive": "yes"}``; it keeps none.
    join
        how long predictions and labels wait for each other.
    **options
        the options of `RecalibratorConfig` by name.

    Raises
    ------
    ImportError
        if narwhals is not installed.
    TypeError
        if what is given is no data frame.
    ValueError
        if a column that is needed is not there, an option is wrong, or labels or scores do not mean what
        they would be taken for.

    Examples
    --------
    >>> import polars as pl
    >>> scores = [0.1, 0.2, 0.8, 0.9]
    >>> predictions = pl.DataFrame({"id": ["a", "b", "c", "d"], "score": scores})
    >>> labels = pl.DataFrame({"id": ["a", "c"], "label": [0, 1]})
    >>> done = backtest(predictions, labels)
    >>> done.frame.columns
    ['id', 'score', 'probability', 'map_version', 'weight_0', 'weight_1']
    >>> done.summary["join"]["joined"]
    2
    """
    names = columns if isinstance(columns, Columns) else Columns.model_validate(dict(columns or {}))
    names = names.model_copy(update={"keep": ()})
    pipeline = Pipeline(RecalibratorConfig(**options), join, columns=names)
    kept: dict[str, _Rows] = {kind: _Rows(kind) for kind in ("answers", "rejects", "maps")}
    before = [] if calibration is None else [_Source(calibration, "calibration", names)]
    deployment = [_Source(predictions, "events", names)]
    if labels is not None:
        deployment.append(_Source(labels, "labels", names))
    outputs = Outputs(kept["answers"], kept["rejects"], kept["maps"])
    Runner(pipeline, Inputs(before, deployment), outputs, None, clock=lambda: 0.0).run()
    return Backtest(pipeline, predictions, kept["answers"].rows, kept["rejects"].rows, kept["maps"].rows)


@dataclass(frozen=True)
class Backtest:
    """Results of a replay."""

    _pipeline: Pipeline
    _like: Frame
    _answers: Sequence[Recalibrated] = field(repr=False)
    rejects: Sequence[RejectRow] = field(repr=False)
    """Rejected rows, and why; a ``line`` is the number of the row, from 1."""
    _maps: Sequence[MapRow] = field(repr=False)

    @cached_property
    def frame(self) -> Frame:
        """The answers, a frame of the library that the predictions came in; in the order of their times.

        Columns: ``id``, ``score``, ``probability``, ``map_version``, ``weight_0`` and ``weight_1`` (of the
        shift correction), and ``key`` and ``time`` (seconds) if any prediction had one.
        """
        narwhals = _narwhals()
        rows = [msgspec.structs.astuple(row) for row in self._answers]
        ids, scores, probabilities, versions, weights, keys, times = (
            zip(*rows, strict=True) if rows else [()] * 7
        )
        made: dict[str, Any] = {
            "id": list(ids),
            "score": np.array(scores, np.float64),
            "probability": np.array(probabilities, np.float64),
            "map_version": np.array(versions, np.int64),
            "weight_0": np.array([pair[0] for pair in weights], np.float64),
            "weight_1": np.array([pair[1] for pair in weights], np.float64),
        }
        if any(key is not None for key in keys):
            made["key"] = list(keys)
        if any(time is not None for time in times):
            made["time"] = np.array(times, np.float64)
        library = narwhals.get_native_namespace(self._like)
        text = narwhals.String()
        series = [
            narwhals.new_series(name, values, text if isinstance(values, list) else None, backend=library)
            for name, values in made.items()
        ]
        return narwhals.from_dict({each.name: each for each in series}).to_native()

    @property
    def summary(self) -> dict[str, Any]:
        """The figures of the run: what the join counted, and how good scores and probabilities were."""
        return run_summary(build_status(self._pipeline, claims=False))

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


class _Rows(NullSink):
    """Keeps the rows of a sink."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Any] = []

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Keep rows."""
        self.rows.extend(rows)


class _Batch:
    """Rows of a frame; see `streamcal.run.ports.Batch`."""

    partition = ""

    def __init__(
        self, name: str, first: int, rows: nw.DataFrame[Any], events: Sequence[Event | Malformed]
    ) -> None:
        self.events = events
        self._name, self._first, self._rows = name, first, rows

    def origin(self, index: int) -> Origin:
        row = self._rows[index : index + 1].rows(named=True)[0]
        raw = msgspec.json.encode({str(name): str(value) for name, value in row.items() if value is not None})
        return Origin(self._name, self._first + index + 1, raw)

    def position(self, count: int) -> Position:
        return self._first + count


class _Source:
    """A frame as a source of events; see `streamcal.run.ports.Source`."""

    endless = False

    def __init__(self, frame: Frame, kind: InputKind, columns: Columns) -> None:
        self.name = "predictions" if kind == "events" else kind
        self.unknown_fields: Mapping[str, int] = {}
        own = columns.of(kind)
        rows = _narwhals().from_native(frame, eager_only=True)
        needed: dict[InputKind, tuple[Role, ...]] = {
            "events": ("id", "score"),
            "labels": ("id", "label"),
            "calibration": ("score", "label"),
        }
        weights = [role for role in WEIGHTS if own.names.get(role) in columns.required(kind)]
        for role in (*needed[kind], *weights):
            _check_column(rows.columns, own.names[role], role, self.name)
        domain: Domain = "source" if kind == "calibration" else "target"
        ignored = {"score", "key", "domain"} if kind == "labels" else set()
        read = {name for role, name in own.names.items() if role not in ignored}
        self._rows = rows.select([name for name in rows.columns if name in read])
        self._decoder = RowsDecoder(self._rows.columns, domain, own)
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at >= len(self._rows)

    def seek(self, positions: Positions) -> Positions:  # noqa: ARG002  # nothing is ever resumed
        return {"": self._at}

    def limit(self, positions: Positions | None) -> None:
        """Do nothing: nothing is ever resumed."""

    def poll(self, max_events: int, timeout: float) -> Sequence[_Batch]:  # noqa: ARG002  # all is there
        first = self._at
        rows = self._rows[first : first + min(max_events, _ROWS)]
        self._at += len(rows)
        return [_Batch(self.name, first, rows, self._events(rows))]

    def lag(self) -> Mapping[str, float]:
        return {"": float(len(self._rows) - self._at)}

    def close(self) -> None:
        """Do nothing."""

    def _events(self, rows: nw.DataFrame[Any]) -> Sequence[Event | Malformed]:
        roles = self._decoder.roles
        values = {role: _values(role, rows[name]) for role, name in roles.items()}
        if len(rows) and all(_is_in_form(role, column) for role, column in values.items()):
            return self._decoder.decode(values, (), len(rows))
        return self._decoder.rows(values)


def _is_in_form(role: Role, values: Sequence[Any]) -> bool:
    types = set(map(type, values)) - {type(None)}
    return any(types <= fit for fit in _TYPES.get(role, ({str},)))


def _values(role: Role, column: nw.Series[Any]) -> list[Any]:
    """Return the values of a column, None where one is missing; in the form of its role if it is a type's."""
    narwhals, kind = _narwhals(), column.dtype
    missing = np.asarray(column.is_null().to_numpy(), np.bool_)
    if role == "time" and kind in (narwhals.Datetime, narwhals.Date):
        with suppress(ValueError):  # one lies beyond all times: each is left for its row
            seconds = np.full(len(column), np.nan)
            seconds[~missing] = as_times(column.drop_nulls().to_native(), int((~missing).sum()))
            return _with_gaps(seconds)
    if kind.is_numeric() and (role in ("score", "time") or (role == "label" and not kind.is_integer())):
        return _with_gaps(np.asarray(column.cast(narwhals.Float64()).to_numpy(), np.float64))
    if kind.is_integer() and role != "label":  # an id, a key or a domain
        column = column.cast(narwhals.String())
    values: list[Any] = column.to_list()
    for index in np.flatnonzero(missing):
        values[index] = None
    return values


def _with_gaps(numbers: Floats) -> list[float | None]:
    """Return numbers, None for NaN."""
    values: list[float | None] = numbers.tolist()
    for index in np.flatnonzero(np.isnan(numbers)):
        values[index] = None
    return values


def _check_column(found: Sequence[str], name: str, role: str, frame: str) -> None:
    if name in found:
        return
    meant = [each for each in found if did_you_mean(each) == role]
    hint = f": columns={{{role!r}: {meant[0]!r}}} takes {meant[0]!r} for it" if meant else ""
    raise ValueError(f"{frame} has no column {shown(name)}{hint}; it has {', '.join(map(shown, found))}")


def _narwhals() -> Any:
    try:
        import narwhals
    except ImportError:
        raise ImportError("data frames need narwhals: pip install 'streamcal-engine[frames]'") from None
    return narwhals

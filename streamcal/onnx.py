"""A map as an ONNX model, for a runtime beside the classifier's own: standard operators, in float64.

The edges are searched by halving: log₂ B comparisons for a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from streamcal.base.values import Floats
from streamcal.engine.multiclass.class_map import MulticlassMap, forecast
from streamcal.engine.multiclass.softmax_c import END
from streamcal.maps.pieces import pieces
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.checks import ROUNDING

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["model"]

_OPSET: Final = 13  # the first with all that is used; runtimes since 2020 read it
_IR_VERSION: Final = 7  # which came with it


def model(
    recalibration: RecalibrationMap | MulticlassMap, dtype: Literal["float32", "float64"] = "float64"
) -> ModelProto:
    """Return a model from ``score``, float[n], to ``probability``, float[n].

    Of K classes, it goes from ``scores``, float[n, K], to ``probabilities``, float[n, K].
    Of a step map, and of the identity, the probabilities have the bits of `RecalibrationMap.predict_many`.
    Of other maps they may differ in the last bits, as the runtime's Log and Exp are not NumPy's.
    The probability is NaN where ``predict_many`` would refuse; of classes, the whole row is.
    The property ``map`` of the model's metadata is the map as JSON.

    Parameters
    ----------
    recalibration
        the map.
    dtype
        of score and probability; what is between is computed in float64 all the same.

    Raises
    ------
    ImportError
        if onnx is not installed.
    TypeError
        if it is no map.
    """
    try:
        from onnx import TensorProto, helper  # an extra
    except ImportError as error:
        raise ImportError(
            "streamcal.onnx needs onnx: pip install '.[onnx]' in a checkout of streamcal"
        ) from error
    outside = TensorProto.FLOAT if dtype == "float32" else TensorProto.DOUBLE
    source, target = "score", "probability"
    shape: list[str | int] = ["n"]
    if isinstance(recalibration, MulticlassMap):
        source, target = "scores", "probabilities"
        shape.append(len(recalibration.classes))
    node = _Nodes()
    scores = node("Cast", source, to=TensorProto.DOUBLE)
    least, most = -ROUNDING, 1.0 + ROUNDING
    inside = node("And", node("GreaterOrEqual", scores, least), node("LessOrEqual", scores, most))
    if isinstance(recalibration, MulticlassMap):
        off = node("Sub", node.sum(node("Where", inside, scores, np.nan)), 1.0)
        inside = node("LessOrEqual", node("Abs", off), ROUNDING)
    z = node("Clip", node("Where", inside, scores, 0.5), 0.0, 1.0)
    if isinstance(recalibration, MulticlassMap):
        found = forecast(recalibration, _Steps(node, len(recalibration.classes)), z)
    else:
        found = _probability(node, z, [recalibration])
    node("Cast", node("Where", inside, found, np.nan), name=target, to=outside)
    graph = helper.make_graph(
        node.nodes,
        "recalibration",
        [helper.make_tensor_value_info(source, outside, shape)],
        [helper.make_tensor_value_info(target, outside, shape)],
        node.constants,
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="streamcal",
        model_version=recalibration.version,
    )
    helper.set_model_props(made, {"map": recalibration.model_dump_json()})
    return made


class _Nodes:
    """Nodes and constants of a graph; a call adds a node, and returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(
        self,
        operator: str,
        *inputs: npt.ArrayLike,
        name: str = "",
        also: Sequence[str] = (),
        **attributes: Any,
    ) -> str:
        """Add an operator on results, by name, and on constants, as NumPy takes them.

        ``also`` names results that are not used.
        """
        from onnx import helper, numpy_helper

        names = []
        for each in inputs:
            if not isinstance(each, str):
                constant = f"constant_{len(self.constants)}"
                self.constants.append(numpy_helper.from_array(np.asarray(each), constant))
                names.append(constant)
            else:
                names.append(each)
        name = name or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [name, *also], name, **attributes))
        return name

    def sum(self, rows: str) -> str:
        """Add the sums of rows, [n, 1]."""
        return self("ReduceSum", rows, [1], keepdims=1)


class _Steps:
    """Steps of a map of K classes; rows are names of results, float64[n, K]."""

    def __init__(self, node: _Nodes, classes: int) -> None:
        self._node, self._classes = node, classes

    def logs(self, rows: str) -> str:
        return self._node("Log", self._node("Max", rows, END))

    def scaled(self, x: str, slopes: Floats, biases: Floats) -> str:
        node = self._node
        if len(slopes) > self._classes:
            deviations = node("Sub", x, node("ReduceMean", x, axes=[1]))
            exponents = node("MatMul", deviations, slopes.reshape(-1, self._classes).T)
        else:
            exponents = node("Mul", x, slopes)
        return node("Softmax", node("Add", exponents, biases), axis=1)

    def mapped(self, maps: Sequence[RecalibrationMap | None], rows: str, instead: str) -> str:
        node = self._node
        kinds = ["" if each is None else "steps" if each.values else each.kind for each in maps]
        parts, order = [], np.argsort(kinds, kind="stable")
        for kind in sorted(set(kinds)):
            own = [(code, each) for code, each in enumerate(maps) if kinds[code] == kind]
            columns = node("Gather", rows if kind else instead, [code for code, _ in own], axis=1)
            some = [each for _, each in own if each]
            parts.append(_probability(node, columns, some) if some else columns)
        return node("Gather", node("Concat", *parts, axis=1), np.argsort(order), axis=1)

    def times(self, rows: str, factors: Floats) -> str:
        return self._node("Mul", rows, factors)

    def shares(self, rows: str, instead: str) -> str:
        total = self._node.sum(rows)
        return self._node("Where", self._node("Greater", total, 0.0), self._node("Div", rows, total), instead)

    def mixed(self, made: Sequence[str], weights: Floats) -> str:
        parts = [self._node("Mul", rows, weight) for rows, weight in zip(made, weights, strict=True)]
        return self.shares(self._node("Sum", *parts), made[0])

    def with_rest(self, rows: str) -> str:
        second = self._node("Gather", rows, [1], axis=1)
        return self._node("Concat", self._node("Sub", 1.0, second), second, axis=1)

    def ordered(self, rows: str, scores: str) -> str:
        node = self._node
        top = node("ArgMax", scores, axis=1)
        own = node("GatherElements", rows, top, axis=1)
        others = node("ScatterElements", rows, top, node("Sub", node("Mul", own, 0.0), 1.0), axis=1)
        falling = node("TopK", others, [self._classes - 1], also=["places"])
        sums = node("Add", own, node("CumSum", falling, np.int64(1)))
        level = node("ReduceMax", node("Div", sums, np.arange(2.0, self._classes + 1)), axes=[1])
        above = node("Mul", level, 1.0 + 2.0**-52)  # its equals
        pooled = node("ScatterElements", node("Min", rows, level), top, above, axis=1)
        return node("Where", node("Equal", node("ArgMax", rows, axis=1), top), rows, pooled)


def _probability(node: _Nodes, z: str, maps: Sequence[RecalibrationMap]) -> str:
    """Add what `RecalibrationMap.predict_many` computes of scores in [0, 1], in the same order.

    A column of scores has a map; all are step maps, or all linear, or all the identity.
    """
    values = [pieces(each).values for each in maps]
    if values[0]:
        place, width = _count(node, z, [each.edges[1:-1] for each in maps])
        return node("Gather", _table(values, width), place)
    p = z
    if maps[0].knots:
        knots, y = [np.array(each.knots) for each in maps], [np.array(each.log_odds) for each in maps]
        end = 2.0**-40
        z = node("Clip", z, end, 1.0 - end)
        x = node("Log", node("Div", z, node("Sub", 1.0, z)))
        place, width = _count(node, x, knots)
        # Below the first knot, between two, and above the last one: a line each.
        start, base = (
            node("Gather", _table([np.append(each[0], each) for each in table], width), place)
            for table in (knots, y)
        )
        slopes = [np.pad(np.diff(b) / np.diff(a), 1) for a, b in zip(knots, y, strict=True)]
        slope = node("Gather", _table(slopes, width), place)
        exponent = node("Add", base, node("Mul", node("Sub", x, start), slope))
        p = node("Div", 1.0, node("Add", 1.0, node("Exp", node("Neg", exponent))))
    w0, w1 = np.array([each.weights for each in maps]).T
    if (w0 == w1).all():
        return p
    positive = node("Mul", w1, p)
    total = node("Add", positive, node("Mul", w0, node("Sub", 1.0, p)))
    changed = node("And", node("Greater", total, 0.0), w0 != w1)
    return node("Where", changed, node("Div", positive, total), p)


def _count(node: _Nodes, x: str, edges: Sequence[npt.ArrayLike]) -> tuple[str, int]:
    """Add the numbers of edges that are at most x, as places in a `_table`; return these, and its width."""
    width = 1 << max(1, *(np.size(each).bit_length() for each in edges))
    padded, step = _table(edges, width), width // 2
    place: npt.ArrayLike = np.arange(len(edges)) * width
    while step:
        edge = node("Gather", padded, node("Add", place, step - 1))
        place = node("Where", node("Less", x, edge), place, node("Add", place, step))
        step //= 2
    return str(place), width


def _table(rows: Sequence[npt.ArrayLike], width: int) -> Floats:
    """Return rows one after the other, with ∞ behind them to a width."""
    return np.concatenate([np.append(each, np.full(width - np.size(each), np.inf)) for each in rows])

"""A map as an ONNX model, for a runtime beside the classifier's own: standard operators, in float64.

The edges are searched by halving: log₂ B comparisons for a score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from streamcal.maps.pieces import pieces
from streamcal.maps.recalibration_map import RecalibrationMap

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["model"]

_OPSET: Final = 13  # the first with all that is used; runtimes since 2020 read it
_IR_VERSION: Final = 7  # which came with it


def model(recalibration: RecalibrationMap, dtype: Literal["float32", "float64"] = "float64") -> ModelProto:
    """Return a model from ``score``, float[n], to ``probability``, float[n].

    Of a step map, and of the identity, the probabilities have the bits of `RecalibrationMap.predict_many`.
    Of a linear map they may differ in the last bits, as the runtime's Log and Exp are not NumPy's.
    The probability is NaN where ``predict_many`` would refuse: of NaN, or what is not in [0, 1].
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
    """
    try:
        from onnx import TensorProto, helper  # an extra
    except ImportError as error:
        raise ImportError(
            "streamcal.onnx needs onnx: pip install '.[onnx]' in a checkout of streamcal"
        ) from error
    outside = TensorProto.FLOAT if dtype == "float32" else TensorProto.DOUBLE
    node = _Nodes()
    given = node("Cast", "score", to=TensorProto.DOUBLE)
    inside = node("And", node("GreaterOrEqual", given, 0.0), node("LessOrEqual", given, 1.0))
    found = _probability(node, node("Where", inside, given, 0.5), recalibration)
    node("Cast", node("Where", inside, found, np.nan), name="probability", to=outside)
    graph = helper.make_graph(
        node.nodes,
        "recalibration",
        [helper.make_tensor_value_info("score", outside, ["n"])],
        [helper.make_tensor_value_info("probability", outside, ["n"])],
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

    def __call__(self, operator: str, *inputs: npt.ArrayLike, name: str = "", **attributes: Any) -> str:
        """Add an operator on results, by name, and on constants, as NumPy takes them."""
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
        self.nodes.append(helper.make_node(operator, names, [name], name, **attributes))
        return name


def _probability(node: _Nodes, z: str, recalibration: RecalibrationMap) -> str:
    """Add what `RecalibrationMap.predict_many` computes of scores in [0, 1], in the same order."""
    edges, values, _ = pieces(recalibration)
    w0, w1 = recalibration.weights
    if recalibration.values:
        return node("Gather", values, _count(node, z, edges))
    p = z
    if recalibration.knots:
        knots, y = np.array(recalibration.knots), np.array(recalibration.log_odds)
        end = 2.0**-40
        z = node("Clip", z, end, 1.0 - end)
        x = node("Log", node("Div", z, node("Sub", 1.0, z)))
        place = _count(node, x, knots)
        # Below the first knot, between two, and above the last one: a line each.
        start, base = (node("Gather", np.append(each[0], each), place) for each in (knots, y))
        slope = node("Gather", np.concatenate(([0.0], np.diff(y) / np.diff(knots), [0.0])), place)
        exponent = node("Add", base, node("Mul", node("Sub", x, start), slope))
        p = node("Div", 1.0, node("Add", 1.0, node("Exp", node("Neg", exponent))))
    if w0 == w1:
        return p
    positive = node("Mul", w1, p)
    total = node("Add", positive, node("Mul", w0, node("Sub", 1.0, p)))
    return node("Where", node("Greater", total, 0.0), node("Div", positive, total), p)


def _count(node: _Nodes, x: str, edges: npt.ArrayLike) -> str:
    """Add the number of edges that are at most x."""
    edges = np.asarray(edges, np.float64)
    steps = len(edges).bit_length()
    padded = np.append(edges, np.full((1 << steps) - 1 - len(edges), np.inf))
    place = node("ConstantOfShape", node("Shape", x), value=_no_place())
    for step in (1 << k for k in reversed(range(steps))):
        edge = node("Gather", padded, node("Add", place, step - 1))
        place = node("Where", node("Less", x, edge), place, node("Add", place, step))
    return place


def _no_place() -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.zeros(1, np.int64))

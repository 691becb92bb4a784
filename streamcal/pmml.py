"""A map as a PMML model, for an engine that reads PMML 4.4: standard elements, computed in double."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

import numpy as np

from streamcal.maps.pieces import pieces
from streamcal.maps.platt import expit
from streamcal.maps.recalibration_map import RecalibrationMap

__all__ = ["model"]

_END: Final = 2.0**-40  # scores of a linear map are taken for at least this far away from 0 and 1
_ALLOWED: Final = 1e-12  # difference of a linear map's probability

_Term = str | float | tuple[object, ...]  # a field, a constant, or a function with its terms


def model(recalibration: RecalibrationMap) -> bytes:
    """Return a PMML document: a model from the field ``score`` to the output ``probability``.

    Of a step map, and of the identity, the probabilities have the bits of `RecalibrationMap.predict_many`.
    Of a linear map they differ by 1e-12 at most, as the engine's logarithm and exp are not NumPy's.
    The probability is missing where ``predict_many`` would refuse: of NaN, or what is not in [0, 1].
    The extension ``map`` of the header is the map as JSON.

    Raises
    ------
    ValueError
        if a unit in the last place of a logarithm could move a linear map's probability by more than 1e-12.
    """
    apart = _apart(recalibration) if recalibration.knots else 0.0
    if apart > _ALLOWED:
        raise ValueError(
            f"the map's probabilities could differ by {apart:.1e} between two engines, more than {_ALLOWED}: "
            "its log_odds are too steep between two knots, or its weights too far apart. "
            "Let streamcal answer, or take a map of kind 'step'"
        )
    root = ElementTree.Element("PMML", version="4.4", xmlns="http://www.dmg.org/PMML-4_4")
    header = _add(root, "Header", modelVersion=recalibration.version)
    _add(header, "Extension", name="map", value=recalibration.model_dump_json())
    _add(header, "Application", name="streamcal")
    dictionary = _add(root, "DataDictionary", numberOfFields=1)
    score = _add(dictionary, "DataField", name="score", optype="continuous", dataType="double")
    _add(score, "Interval", closure="closedClosed", leftMargin=0.0, rightMargin=1.0)
    found = _probability(_add(root, "TransformationDictionary"), recalibration)
    regression = _add(root, "RegressionModel", modelName="recalibration", functionName="regression")
    schema = _add(regression, "MiningSchema")
    _add(schema, "MiningField", name="score", invalidValueTreatment="asMissing")
    output, kind = _add(regression, "Output"), {"optype": "continuous", "dataType": "double"}
    _add(output, "OutputField", name="probability", feature="predictedValue", **kind)
    _add(_add(regression, "RegressionTable", intercept=0.0), "NumericPredictor", name=found, coefficient=1.0)
    return bytes(ElementTree.tostring(root, "UTF-8", xml_declaration=True))


def _probability(to: ElementTree.Element, recalibration: RecalibrationMap) -> str:
    """Add what `RecalibrationMap.predict_many` computes of a score, in the same order; return its field."""
    w0, w1 = recalibration.weights
    if recalibration.values:
        edges, values, _ = pieces(recalibration)
        steps = _add(_field(to, "p"), "Discretize", field="score", dataType="double")
        for left, right, value in zip((0.0, *edges), (*edges, 1.0), values, strict=True):
            closure = "closedClosed" if right == 1.0 else "closedOpen"
            one = _add(steps, "DiscretizeBin", binValue=value)
            _add(one, "Interval", closure=closure, leftMargin=left, rightMargin=right)
        return "p"
    p = "score"
    if recalibration.knots:
        # No "min" and "max": of a missing score they are the other term.
        high = ("if", ("greaterThan", "score", 1.0 - _END), 1.0 - _END, "score")
        _apply(_field(to, "z"), ("if", ("lessThan", "score", _END), _END, high))
        _apply(_field(to, "x"), ("ln", ("/", "z", ("-", 1.0, "z"))))
        lines = _add(_field(to, "y"), "NormContinuous", field="x", outliers="asExtremeValues")
        x, y = recalibration.knots, recalibration.log_odds
        # A line of PMML has two ends: above the last knot the map is constant.
        for knot, log_odds in zip((*x, x[-1] + 1.0), (*y, y[-1]), strict=True):
            _add(lines, "LinearNorm", orig=knot, norm=log_odds)
        _apply(_field(to, "h"), ("/", 1.0, ("+", 1.0, ("exp", ("-", 0.0, "y")))))
        p = "h"
    if w0 == w1:
        return p
    positive = ("*", w1, p)
    total = ("+", positive, ("*", w0, ("-", 1.0, p)))
    _apply(_field(to, "p"), ("if", ("greaterThan", total, 0.0), ("/", positive, total), p))
    return "p"


def _apart(recalibration: RecalibrationMap) -> float:
    """Return a bound on the difference of a linear map's probabilities by two engines' ln and exp.

    Each may be off by four units in the last place; that is moved on by slope · p(1 − p), and by g.
    """
    w0, w1 = recalibration.weights
    if not w0 or not w1:
        return np.inf  # at 1 − p = 0 the probability is p, else 0 or 1
    x, y = np.array(recalibration.knots), np.array(recalibration.log_odds)
    steep = np.abs(np.diff(y) / np.diff(x)) * np.spacing(np.maximum(np.abs(x[:-1]), np.abs(x[1:])) + 1.0)
    unit = np.max(np.spacing(np.abs(y)))
    low, high = np.sort([y[:-1], y[1:]], axis=0) + np.log(w1 / w0)
    nearest = np.maximum(np.maximum(low, -high), 0.0)  # log-odds of the piece to those of 1/2
    by_logarithm = np.max(8.0 * (steep + unit) * expit(-nearest), initial=0.0)
    return float(by_logarithm + 2.0**-50 * max(1.0, w0 / w1))  # near 1, 1 − p has few digits


def _field(to: ElementTree.Element, name: str) -> ElementTree.Element:
    return _add(to, "DerivedField", name=name, optype="continuous", dataType="double")


def _apply(to: ElementTree.Element, term: _Term) -> None:
    if isinstance(term, str):
        _add(to, "FieldRef", field=term)
    elif isinstance(term, float):
        _add(to, "Constant", dataType="double").text = repr(term)
    else:
        function, *terms = term
        made = _add(to, "Apply", function=function)
        for each in terms:
            _apply(made, each)  # type: ignore[arg-type]


def _add(to: ElementTree.Element, tag: str, **attributes: object) -> ElementTree.Element:
    return ElementTree.SubElement(to, tag, {name: str(value) for name, value in attributes.items()})

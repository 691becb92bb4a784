"""The constants in docs/proofs/mixture.md and the candidates in docs/drift.md are those of the code."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from streamcal.mixture import slopes, weights
from streamcal.mixture.candidates import CANDIDATES, EARLY, are, names_of
from streamcal.mixture.forecasts_c import SLOPES
from streamcal.mixture.weights import Weights

COMPOSITE = are("source", CANDIDATES)
DOCS = Path(__file__).parents[2] / "docs"
PROOFS = (DOCS / "proofs" / "mixture.md").read_text()
DRIFT = (DOCS / "drift.md").read_text()


def said(pattern: str) -> float:
    """Return the one number that the proofs name like this."""
    (number,) = re.findall(pattern, PROOFS)
    exponents = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    return float(number.replace(",", "").replace("·10", "e").replace("10⁻", "1e⁻").translate(exponents))


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"c_b = ([\d.]+)·\(1 \+ 1,000", weights.RATE),
        (r"·\(1 \+ ([\d,]+)/\(n \+ 32\)\) after", weights.EARLY),
        (r"η′_b = min\(1, ([\d.]+)/λ′_b\)", weights._LEAD_RATE),
        (r"a_b = ([\d·]+⁻[⁰-⁹¹²³]+)·min\(1, λ_b/log 2\)", weights.SHARE),
        (r"first weights ([\d.]+) each", weights._TRUST),
        (r"of m_b ≤ (\d+) labels each", weights.BLOCK),
        (
            r"half of it is from the latest ([\d,]+) labels before",
            -1.0 / math.log2(weights._RATES.kept),
        ),
        (r"kept within \[(10⁻¹²),", weights._RATES.least_trust),
        (r"the rate η = ([\d.]+), and the share 10", slopes.RATE),
        (r"and the share (10⁻⁵) a label", slopes.SHARE),
    ],
)
def test_the_proofs_name_the_constants(pattern: str, value: float) -> None:
    assert said(pattern) == pytest.approx(value)


def test_the_proofs_name_the_first_weights() -> None:
    plain, sourced = Weights(), Weights()
    sourced.set_source()
    first, others = plain.served[0], ~COMPOSITE
    assert (first[0], others.sum()) == (pytest.approx(1 / 5), 13)
    assert first[others][1:] == pytest.approx(1 / 15)
    assert np.array_equal(first[COMPOSITE], np.zeros(2))
    assert sourced.served[0][COMPOSITE] == pytest.approx(1 / 8)
    assert sourced.served[0][0] == pytest.approx(3 / 20)
    assert sourced.served[0][others][1:] == pytest.approx(1 / 20)


def test_the_proofs_name_the_factors_and_what_they_cost() -> None:
    first, factors = slopes.Slopes().weights.tolist(), SLOPES.tolist()
    assert f"the first weights ({', '.join(map(str, first))}), the rate" in PROOFS
    assert f"The factors φ are {factors[0]:.0f}, {factors[1]}, {factors[2]} and {factors[3]}." in PROOFS
    assert said(r"the layer costs at most ([\d.]+) nats once") == round(-math.log(first[0]) / slopes.RATE, 2)
    assert said(r"the dearest, it is (\d+) nats once") == round(-math.log(first[3]) / slopes.RATE)


def test_drift_names_every_candidate() -> None:
    assert [name for name in names_of((*CANDIDATES, *EARLY)) if f"`{name}`" not in DRIFT] == []

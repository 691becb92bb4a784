"""What a bound that claims nothing says, and when a first claim is expected."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal import Certificate, Recalibrator
from streamcal.certificates.record import NO_CLAIM
from streamcal.testing import NormalPair
from tests.nightly import one_in


def certified(n_source: int, n_target: int, seed: int, **options: object) -> Certificate:
    rng = np.random.default_rng([31, seed])
    engine = Recalibrator(**options)
    engine.learn_many(*NormalPair(0.5).sample(n_source, rng), "source")
    if n_target:
        engine.learn_many(*NormalPair(0.1).sample(n_target, rng))
    certificate = engine.certificate
    assert certificate is not None
    return certificate


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_a_first_claim_comes_near_the_labels_that_were_expected(seed: int) -> None:
    expected = certified(80, 0, seed, mode="source").labels_needed
    assert expected is not None
    assert certified(max(64, expected // 4), 0, seed, mode="source").risk >= NO_CLAIM
    assert certified(expected * 4, 0, seed, mode="source").risk < NO_CLAIM


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_by_label_shift_it_is_the_labels_of_the_target_that_are_counted(seed: int) -> None:
    certificate = certified(2_000, 8, seed, mode="composite")
    expected = certificate.labels_needed
    assert certificate.risk < NO_CLAIM
    assert expected is not None
    later = certified(2_000, 8 * expected, seed, mode="composite").target_risk
    assert later is not None
    assert later < NO_CLAIM
    assert repr(certificate).startswith(
        f"Certificate(version={certificate.version}, domain='source', risk=0.0"
    )
    words = f"no claim yet: 8 labels so far, first claim expected near {expected:,}"
    assert f"target_risk={words}," in str(certificate)
    assert f"<td>{words}</td>" in certificate._repr_html_()

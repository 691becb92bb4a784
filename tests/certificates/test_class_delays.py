"""Certificates of streams whose labels come later for their class: no bound is below the true risk.

Pairs are independent, half of them positive. The true risk is that of the published map on 4,000 fresh
scores, whose P[Y=1 | score] is known.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from streamcal import Certificate, LabelEvent, MapPublished, PredictionEvent, Recalibrator
from streamcal.certificates.record import NO_CLAIM
from tests.delayed.streams import Delays, Stream, bulk, by_class, made
from tests.nightly import one_in

DELAYS: dict[str, Delays] = {
    "positives late": by_class(300.0, 3000.0),
    "negatives late": by_class(3000.0, 300.0),
    "positives weekly": bulk(1, 4000.0),
}
_MINUTE = 60.0  # between predictions


class Published(NamedTuple):
    """A certificate that was published with its map."""

    certificate: Certificate
    risk: float
    """True risk of the map."""
    differs: bool
    """Whether one class was known to come later, then or before."""

    @property
    def bound(self) -> float:
        """Bound on the risk in the target."""
        bound = self.certificate.target_risk
        return 1.0 if bound is None else bound


def published(engine: Recalibrator, name: str, seed: int, n: int) -> list[Published]:
    """Return the certificates that an engine publishes on a stream of so many predictions."""
    stream: Stream = made(n, [91, seed], DELAYS[name], rate=0.5)
    fresh = made(4000, [92, seed], DELAYS[name], rate=0.5)
    scores, labels, due = stream.scores.tolist(), stream.labels.tolist(), stream.due.tolist()
    found, order, j, differs = list[Published](), stream.order(), 0, False

    def take(event: PredictionEvent | LabelEvent) -> None:
        nonlocal differs
        for emission in engine.step(event):
            if isinstance(emission, MapPublished) and emission.certificate is not None:
                delays = engine.label_delays
                differs |= delays is not None and delays.within is not None and delays.z > 5.0
                risk = float(((emission.map.predict_many(fresh.scores) - fresh.truth) ** 2).mean())
                found.append(Published(emission.certificate, risk, differs))

    for i in range(n):
        take(PredictionEvent(str(i), scores[i], i * _MINUTE))
        while j < len(order) and due[order[j]] <= i:
            take(LabelEvent(str(order[j]), labels[order[j]], due[order[j]] * _MINUTE))
            j += 1
    return found


@pytest.mark.statistical
@pytest.mark.parametrize("seed", one_in(2, range(2)))
@pytest.mark.parametrize("name", DELAYS)
def test_no_bound_is_below_the_risk_though_one_class_comes_later(name: str, seed: int) -> None:
    """At every certificate. Once one class is known to come later, they are of cohorts.

    Of 120 such streams, the risk is at most .104 of a bound: that it is above one is far rarer than 10⁻⁶.
    Seen to fail where held labels were certified like all others (the commit before): with negatives late
    the risk was 1.25 of a bound. So does the second test.
    """
    found = published(Recalibrator(), name, seed, 20_000)
    later = [each for each in found if each.differs]
    largest = max(each.risk / each.bound for each in found)
    print(f"{name} {seed}: risk up to {largest:.3f} of a bound; {len(found)}, {len(later)} late")
    assert largest <= 1.0
    assert {each.certificate.cohorts for each in later} == {"matured"}
    assert min(each.bound for each in later) < NO_CLAIM

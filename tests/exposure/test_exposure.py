"""The counts of predictions and told positives, and the rates that follow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.errors import DamagedStateError
from streamcal.exposure.delays import PANES
from streamcal.exposure.estimate import dispersion, latest_change
from streamcal.exposure.exposure import Exposure
from tests.exposure.simulation import DAYS, draw, errors, exposed

M = 64_000.0

Events = list[tuple[float, float, float | None]]

events = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9999, 1.0]),
        st.floats(-1e5, 5e5),
        st.one_of(st.none(), st.floats(0.0, 1.2 * M)),
    ),
    max_size=40,
)


def fed(events: Events, start: Exposure | None = None) -> Exposure:
    """Return an exposure that has seen these events: score, time, and the delay of a positive that is
    told."""
    exposure = start or Exposure(M)
    for score, time, delay in events:
        exposure.predict(score, time)
        if delay is not None:
            exposure.tell(score, time, time + delay)
    return exposure


@given(events, st.randoms(use_true_random=False), st.integers(0, 40))
def test_counts_are_a_function_of_the_multiset(drawn: Events, random: object, cut: int) -> None:
    """Whatever the order, and whether counted at once, in parts, or by two that are merged."""
    whole = fed(drawn).to_bytes()
    shuffled = list(drawn)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fed(shuffled).to_bytes() == whole
    part = fed(drawn[:cut])
    part.merge(fed(drawn[cut:]))
    assert part.to_bytes() == whole
    resumed = Exposure(M).restore(fed(drawn[:cut]).to_bytes())
    assert fed(drawn[cut:], resumed).to_bytes() == whole


def test_a_pane_closes_once_with_the_first_event_after_it() -> None:
    """A prediction and a told positive both move the clock; nothing closes before the first event."""
    exposure, pane = Exposure(M), M / PANES
    assert not exposure.predict(0.5, 10.5 * pane)
    assert not exposure.predict(0.5, 10.9 * pane)
    assert exposure.tell(0.5, 10.5 * pane, 11.0 * pane)
    assert not exposure.predict(0.5, 11.2 * pane)
    assert not exposure.predict(0.5, 3.0 * pane)
    assert exposure.predict(0.5, 5000.0 * pane)


def test_a_positive_after_its_label_is_final_is_none() -> None:
    """It was learned as 0, and counts so here."""
    late, none = fed([(0.5, 0.0, None)]), fed([(0.5, 0.0, None)])
    late.tell(0.5, 0.0, 1.01 * M)
    none.predict(0.5, 1.01 * M)
    late.predict(0.5, 1.01 * M)
    assert late.to_bytes() == none.to_bytes()


def test_no_estimate_before_positives_were_told() -> None:
    """Predictions alone tell nothing of the delay."""
    exposure = fed([(0.5, time, None) for time in np.linspace(0.0, 3.0 * M, 500).tolist()])
    assert exposure.estimate() is None
    assert Exposure(M).estimate() is None


@pytest.mark.parametrize("place", range(0, 200, 7))
def test_damaged_states_are_refused(place: int) -> None:
    """A changed byte gives a state, or the error; never another one."""
    data = bytearray(fed([(0.3, 1000.0 * k, 500.0) for k in range(50)]).to_bytes())
    data[place % len(data)] ^= 0x85
    try:
        again = Exposure(M).restore(bytes(data))
        again.estimate()
        again.to_bytes()
    except DamagedStateError:
        pass


def rates(rng: np.random.Generator, each: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, int]:
    """Draw positives at these ratios of what is expected; return them with the panes since a change."""
    positives = rng.poisson(each * expected).astype(np.float64)
    return positives, latest_change(positives, expected, dispersion(positives, expected))


@pytest.mark.statistical
def test_finds_a_change_and_none_without() -> None:
    """In 300 streams without a change at most 3 have one: a chance of 10⁻⁶ at the rate of e⁻¹⁰·64 or less.

    Days that differ from nights are no change; a doubling 32 panes ago is found within three panes of it.
    """
    rng, expected = np.random.default_rng(5), np.linspace(2.0, 60.0, PANES)
    even, ones = np.arange(PANES) % 2 == 0, np.ones(PANES)
    found = [rates(rng, ones, expected)[1] for _ in range(300)]
    assert sum(size < PANES for size in found) <= 3
    nights = [rates(rng, np.where(even, 1.4, 0.6), expected)[1] for _ in range(300)]
    assert sum(size < PANES for size in nights) <= 3
    doubled = [rates(rng, np.where(np.arange(PANES) < 32, 2.0, 1.0), expected)[1] for _ in range(50)]
    assert all(29 <= size <= 35 for size in doubled)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["constant", "doubled", "by score"])
def test_rates_without_waiting(kind: str) -> None:
    """Two streams of 100,000, seeded; ``python -m tests.exposure`` prints all of 30.

    A constant rate is known nearly as well as by an oracle that has every label at once. After a doubling,
    the error is a fifth of that of waiting and of negative until told, or less: as far as an oracle gets to a
    tenth. Seen to fail with F = 1 for all ages, which is negative until told, and with the delays counted as
    if they were not truncated.
    """
    rows = [errors(drawn, exposed(drawn)) for drawn in (draw(kind, 100_000, seed) for seed in (0, 1))]
    mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    if kind == "constant":
        assert mean["exposure, all"] < 1.3 * mean["oracle"]
        assert mean["exposure, all"] < mean["negative until told"] / 1.5
        return
    naive = min(mean["wait"], mean["negative until told"])
    assert mean["Platt map, recent"] < naive / 5.0
    assert mean["exposure, recent"] < naive / 3.0
    assert mean["oracle since the change"] < naive / 5.0


def test_the_whole_stream_is_in_the_estimate() -> None:
    """What is told until the last pane closed, and every prediction, is in the sums of the memory of all."""
    drawn = draw("constant", 20_000, 3)
    estimate = exposed(drawn).estimate()
    assert estimate is not None
    assert estimate.positives[0].sum() == (drawn.told_at <= DAYS).sum()
    assert 0.85 * 20_000 < estimate.exposures[0].sum() < 20_000
    assert (estimate.exposures[1] <= estimate.exposures[0]).all()

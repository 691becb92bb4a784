"""A learner that records what the join gives it, and the events to give the join."""

from __future__ import annotations

from hypothesis import strategies as st

from streamcal import LabelEvent, LabelledEvent, PredictionEvent, Recalibrated
from streamcal.engine.emissions import Emission
from streamcal.engine.stepping_c import step
from streamcal.events import Event
from streamcal.join.entries import Entry
from streamcal.join.id_table_c import EARLY, ENDED, WAITING, IdTable
from streamcal.join.join import Join
from streamcal.join.outcomes import Contradicted, EarlyPositive, Joined
from streamcal.run.ports import Checkpoint


def stored_entries(checkpoint: Checkpoint) -> list[tuple[str, Entry]]:
    """Return the join's entries in a store, those of each kind in their order."""
    table = IdTable()
    table.load(checkpoint.packs)
    return [pair for queue in (EARLY, WAITING, ENDED) for pair in table.entries(queue)]


EVENTS = st.lists(
    st.one_of(
        st.builds(PredictionEvent, st.sampled_from("abcdef"), st.just(0.3), st.floats(0, 30)),
        st.builds(LabelEvent, st.sampled_from("abcdef"), st.integers(0, 1), st.floats(0, 30)),
        st.builds(
            LabelledEvent, st.just(0.3), st.integers(0, 1), st.sampled_from("abcdef"), st.floats(0, 30)
        ),
    ),
    max_size=60,
)


class Recorder:
    """A learner that answers ½ and remembers what it learned."""

    def __init__(self) -> None:
        self.learned: list[Joined | EarlyPositive] = []
        self.contradicted: list[Contradicted] = []
        self.seen = 3

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, None, tuple[Emission, ...]]:
        return Recalibrated(event.id, event.score, 0.5, 0, (1.0, 1.0)), self.seen, None, ()

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        self.learned.append(joined)
        return ()

    def observe_early(self, positive: EarlyPositive) -> tuple[Emission, ...]:
        self.learned.append(positive)
        return ()

    def contradict(self, contradicted: Contradicted) -> None:
        self.contradicted.append(contradicted)


def emissions(join: Join, event: Event, recorder: Recorder) -> tuple[Emission, ...]:
    """What comes out of one event, but for the labels that were joined: the recorder has those."""
    outcomes = step(event, join, lambda _: recorder)
    return tuple(outcome for outcome in outcomes if not isinstance(outcome, Joined))

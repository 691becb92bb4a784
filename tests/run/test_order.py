"""Expiry where sources are endless: what is read ahead does not outdate what is still to be read."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from streamcal import JoinConfig, RecalibratorConfig
from streamcal.engine.emissions import Emission
from streamcal.join.outcomes import JoinCounts, Joined
from streamcal.join.rules_c import SURE
from streamcal.run.config import RunConfig
from streamcal.run.order import watermark
from streamcal.run.outcome import Outcome
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from tests.dying import DiedError, counted, watch
from tests.memory import Log, MemorySink, MemorySource, MemoryStore, _Records, logs
from tests.nightly import one_in

TTL = 50.0
COUNT = 240


def source(name: str, lag: Mapping[str, float], *, endless: bool = True, ended: bool = False) -> Any:
    return SimpleNamespace(name=name, lag=lambda: lag, endless=endless, ended=ended)


TIMES = {"a": {"0": 5.0, "1": 9.0}, "b": {"": 7.0}}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([source("a", {"0": 1, "1": 1}), source("b", {"": 1})], 5.0),  # the least of the lanes
        ([source("a", {"0": 0, "1": 1}), source("b", {"": 1})], 7.0),  # none holds back when read
        ([source("a", {"0": 0, "1": 0}), source("b", {"": math.nan})], 7.0),  # it cannot tell now
        ([source("a", {"0": 0, "1": 0}), source("c", {"": 1})], -math.inf),  # nothing was read of it
        ([source("a", {"0": 0, "1": 0}), source("b", {"": 0}, endless=False, ended=True)], 9.0),
    ],
)
def test_what_a_watermark_is(sources: Sequence[Any], expected: float) -> None:
    assert watermark(sources, TIMES, 9.0) == expected


class Ragged(MemorySource):
    """Reads its partitions unevenly, one ahead of the others, and at times nothing at all."""

    def __init__(self, name: str, rng: random.Random) -> None:
        super().__init__(f"memory:{name}", logs[name], SourceOptions(follow=True))
        self._rng = rng
        self._weights = {p: rng.choice([0.1, 0.5, 1.0]) for p in sorted(logs[name].partitions)}

    def poll(self, max_events: int, timeout: float) -> Sequence[_Records]:
        batches = []
        for partition, records in sorted(self._log.partitions.items()):
            start = self._next.setdefault(partition, 0)
            stop = min(start + self._rng.randrange(1, 60), self._end(partition, len(records)))
            if stop > start and (self._until is not None or self._rng.random() < self._weights[partition]):
                batches.append(_Records(self, partition, start, records[start:stop]))
                self._next[partition] = stop
        return batches


def event(id_: str, time: float, **fields: object) -> tuple[float, bytes]:
    return time, msgspec.json.encode({"id": id_, "time": time, **fields})


def fill(seed: int) -> tuple[int, int]:
    """Write predictions, and labels that come as late as they may, twice, or never; return how many.

    Partitions are in the order of time, as producers fill them. How many there are is the seed's affair.
    """
    stream = random.Random("the same for all")
    rng = random.Random(seed)
    predictions = [event(str(i), float(i), score=stream.random()) for i in range(COUNT)]
    labels = []
    for i in range(COUNT):
        if stream.random() < 0.1:
            continue
        label = {"label": stream.randrange(2)}
        time = i + stream.choice([1.0, 1.0, stream.random()]) * TTL
        labels.append(event(str(i), time, **label))
        if stream.random() < 0.1:
            labels.append(event(str(i), time + stream.random() * TTL, **label))
    for name, events in (("predictions", predictions), ("labels", labels)):
        count = rng.randrange(1, 4)
        for _, data in sorted(events, key=lambda each: each[0]):
            # By id, as keyed records are: a label and its double are on one partition.
            partition = hash_of(msgspec.json.decode(data)["id"], seed) % count
            logs[name].partitions[str(partition)].append(data)
    labelled = {msgspec.json.decode(data)["id"] for _, data in labels}
    return len(labelled), len(labels) - len(labelled)


def hash_of(id_: str, seed: int) -> int:
    return random.Random(f"{seed} {id_}").randrange(1 << 30)


class Watched(Pipeline):
    """A pipeline of the quickest mode that takes note of what is learned."""

    def __init__(self, learned: list[tuple[float, int]]) -> None:
        recalibrator = RecalibratorConfig(mode="source")
        super().__init__(RunConfig(recalibrator=recalibrator, join=JoinConfig(label_ttl=TTL)))
        self._learned = learned

    def _emit(self, emission: Emission | Joined, outcome: Outcome) -> None:
        super()._emit(emission, outcome)
        if isinstance(emission, Joined):
            self._learned.append((emission.score, emission.label))


class Scene:
    """A store, a sink and a pipeline of endless sources, run in pieces."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = MemoryStore("x")
        self.rejects = Log()
        self.pipeline = Pipeline()
        self.learned: list[tuple[float, int]] = []

    def run(self, stop: Callable[[], bool] | None = None, *, dies_at: int | None = None) -> None:
        """Run until all is read, or until told; die before this commit or entry of the store."""
        store = self.store
        self.pipeline = Watched(self.learned)
        sources = [Ragged(name, self.rng) for name in ("predictions", "labels")]
        outputs = Outputs(MemorySink("answers", Log()), MemorySink("rejects", self.rejects))
        ticks = iter(range(10**9))
        watch(counted("before the store", dies_at), store, "the store", "commit", "keep")
        runner = Runner(
            self.pipeline,
            Inputs([], sources),
            outputs,
            store,
            clock=lambda: next(ticks) * 0.06,
            stop=stop or (lambda: not any(left for each in sources for left in each.lag().values())),
        )
        try:
            runner.run()
        finally:
            del store.commit, store.keep
            store.close()

    def expire_all(self) -> None:
        """Let time pass: what one event shows is the watermark of the next."""
        for number in (10, 20):  # so many events that the jump is believed
            ends = [event(f"{number} {i}", 1.0 * number * COUNT, score=0.5)[1] for i in range(SURE)]
            logs["predictions"].partitions["0"] += ends
            self.run()

    def reasons(self) -> list[str]:
        return [msgspec.json.decode(row)["code"] for row in self.rejects.partitions[""]]


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.clear()
    monkeypatch.setattr("streamcal.run.runner.MAX_EVENTS", 64)


@pytest.mark.slow
def test_labels_within_their_time_meet_their_predictions_however_they_are_read() -> None:
    seen: list[tuple[JoinCounts, list[tuple[float, int]]]] = []
    for seed in range(10):
        logs.clear()
        labelled, doubled = fill(seed)
        scene = Scene(seed)
        looks = iter(range(10**9))
        scene.run(lambda looks=looks, scene=scene: next(looks) > scene.rng.randrange(1, 40))
        scene.run()
        scene.expire_all()
        counts = scene.pipeline.join.counts
        assert (counts.joined, counts.late, counts.unmatched) == (labelled, 0, 0), seed
        assert counts.duplicate == doubled, seed
        assert counts.expired in (COUNT - labelled, COUNT - labelled + SURE), seed
        # What differs: how many labels were read before their prediction, and which last events expire.
        counts.early = counts.expired = 0
        seen.append((counts, sorted(scene.learned)))
    assert all(each == seen[0] for each in seen)


@pytest.mark.slow
@pytest.mark.parametrize("seed", one_in(3, range(5)))
def test_a_batch_that_is_done_again_lets_the_same_expire(seed: int) -> None:
    """Though more has come onto the topics since, which would say otherwise where they end."""
    fill(seed)
    rest = {
        name: {p: [records.pop() for _ in range(len(records) * 2 // 3)][::-1] for p, records in parts.items()}
        for name, parts in ((name, logs[name].partitions) for name in ("predictions", "labels"))
    }
    nobody = [event(f"nobody {i}", i * 2.0, label=1)[1] for i in range(COUNT // 2)]
    logs["labels"].partitions["nobody"] = nobody[: len(nobody) // 3]
    scene = Scene(seed)
    died = 0
    for part in range(1, 4):
        for commit in (2, 1, 3, 1, 2):
            try:
                scene.run(dies_at=commit)
            except DiedError:
                died += 1
                for name, parts in rest.items():
                    for partition, records in parts.items():
                        logs[name].partitions[partition] += records[:9]
                        del records[:9]
        logs["labels"].partitions["nobody"] = nobody[: part * len(nobody) // 3]
    for name, parts in rest.items():
        for partition, records in parts.items():
            logs[name].partitions[partition] += records
    scene.run()
    scene.expire_all()
    assert died > 10
    counts, reasons = scene.pipeline.join.counts, scene.reasons()
    assert counts.unmatched >= len(nobody)
    assert {reason: reasons.count(reason) for reason in set(reasons)} == {
        "unmatched_label": counts.unmatched,
        "duplicate_label": counts.duplicate,
    } | ({"late_label": counts.late} if counts.late else {})

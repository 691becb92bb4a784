"""The rows that a run writes: answers, rejects, map versions and alarms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.string_column import StringColumn
from streamcal.base.values import Floats
from streamcal.certificates.record import (
    DRIFT_OF,
    DriftCode,
)
from streamcal.engine.emissions import DriftAlarm, MapPublished, Recalibrated
from streamcal.engine.stepping_c import Taken
from streamcal.events import Kept, Origin
from streamcal.events.blocks import Block
from streamcal.events.codes import Code, Refusal
from streamcal.events.json_lines_c import answer_lines
from streamcal.maps.rate_limits import RateLimits
from streamcal.quality.figures import Raised

__all__ = [
    "CALIBRATED",
    "OF_RUN",
    "AlarmCode",
    "AlarmRow",
    "AnswerColumns",
    "Answers",
    "Column",
    "MapRow",
    "Recalibrated",
    "RejectRow",
    "Version",
    "VersionRow",
    "alarm_rows",
    "answer_columns",
    "forecast_alarm_row",
    "lost_alarm_row",
    "reject_row",
    "version_of",
]


CALIBRATED: Final = "the forecasts that are served are calibrated, and better than the scores"
"""Assumption that an alarm of the watch over forecasts refutes (`streamcal.quality.watch`)."""

AlarmCode: TypeAlias = DriftCode | Literal["forecasts", "lost_records"]
"""Code of an alarm; ``forecasts``: the verdict says that they deviate."""

OF_RUN: Final = frozenset({"forecasts", "lost_records"})
"""Codes of alarms that no engine raises: they refute no assumption behind a certificate."""

_FOUND: Final[dict[DriftCode, tuple[str, str]]] = {
    "label_shift": (
        "The scores within the classes changed, not only the share of the classes.",
        "Another population, a changed feature, a new model? Claims that rest on label shift are withdrawn."
        " Find out what changed. Mode auto goes on by the target's labels; in another mode, give a new"
        " calibration, or take mode auto.",
    ),
    "monotone": (
        "Somewhere a higher score means a lower probability.",
        "Nothing is certified of the map. Check that the score is that of class 1 (option positive), and that"
        " the ids join each label to its own prediction. If so, the score has lost its meaning there:"
        " recalibration hides that, only a new model repairs it.",
    ),
    "implied_zeros": (
        "Labels 1 came after their predictions had counted as 0.",
        "Positives come later than [join] label_delay_limit, and their predictions were learned as 0:"
        " the map is too low. Nothing is certified of the target. Raise label_delay_limit to the time in"
        " which nearly all positives come, and start anew: what was learned as 0 stays 0.",
    ),
    **{
        code: (
            f"The labels of the {domain} changed over time, or their scores did.",
            "Over time the scores, the class balance or the meaning of a score has changed. Nothing is"
            " certified that rests on these labels. Recalibration goes on: mode auto follows a change, and"
            " other modes forget old labels with a window, under which each version is certified by recent"
            " labels alone. If the change was an error in the data, repair it and start anew.",
        )
        for domain, code in DRIFT_OF.items()
    },
}
"""By the assumption that is refuted: what was found; and what follows from it, and what to do."""


Column: TypeAlias = npt.NDArray[Any] | list[Any]
"""Values of a field, one for each row."""


_encode_lines: Final = msgspec.json.Encoder().encode_lines


class AnswerColumns(NamedTuple):
    """Answers as columns; what many of them share is numbered."""

    ids: StringColumn
    scores: Floats
    probabilities: Floats
    keys: Sequence[str | None] | None
    """Key of each; None if no answer has one."""
    times: Floats
    """NaN: none."""
    versions: Sequence[int]
    """Versions of the maps that answered."""
    weights: Floats
    """Weights of the shift correction, float64[m, 2], of each version."""
    which: npt.NDArray[np.intp]
    """Index of the version and weights of each answer; answers of two keys never share one."""
    kept: Sequence[Kept] | None = None
    """Values that pass through, of each; None: nothing."""
    drawn: Floats | Sequence[float] = ()
    """One over the chance that the label of each is asked for."""
    limits: Sequence[RateLimits | None] = ()
    """Limits of the rate, where rows have intervals, of each version."""
    answers: Sequence[Any] = ()
    """The same, if they were given one by one."""
    row: Any = Recalibrated
    """Type of the rows."""
    added: Mapping[str, Column] = {}
    """Fields of rows that are not above, by name."""
    decided: Sequence[int] | None = None
    """Cell of the decision on each, if the join keeps it; None: it is to be decided."""

    @classmethod
    def of(
        cls,
        answers: Sequence[Recalibrated],
        kept: Sequence[Kept] | None = None,
        drawn: Sequence[float] = (),
        limits: Iterable[RateLimits | None] = repeat(None),
    ) -> Self:
        """Return answers that were given one by one as columns, with what is known beside each."""
        keys, shared, formed = [each.key for each in answers], dict[Any, int](), list[RateLimits | None]()
        which = list[int]()
        for each, of_rate in zip(answers, limits, strict=False):
            same = each.map_version, each.weights, each.key, id(of_rate)
            which.append(shared.setdefault(same, len(shared)))
            formed += [of_rate] * (len(shared) - len(formed))
        return cls(
            StringColumn.of([each.id for each in answers]),
            np.array([each.score for each in answers], np.float64),
            np.array([each.probability for each in answers], np.float64),
            keys if any(key is not None for key in keys) else None,
            np.array([each.time for each in answers], np.float64),
            [version for version, *_ in shared],
            np.array([weights for _, weights, *_ in shared]),
            np.array(which, np.intp),
            kept,
            drawn,
            formed,
            answers,
        )

    @property
    def event_times(self) -> list[float | None]:
        """Times of the events, None where there is none."""
        times: list[float | None] = self.times.tolist()
        return [None if time != time else time for time in times] if np.isnan(self.times).any() else times

    def rows(self) -> Iterator[Recalibrated]:
        """Return them one by one."""
        known, which = list(map(tuple, self.weights.tolist())), self.which.tolist()
        columns: dict[str, Iterable[Any]] = {
            "id": self.ids.tolist(),
            "score": self.scores.tolist(),
            "probability": self.probabilities.tolist(),
            "map_version": [self.versions[index] for index in which],
            "weights": [known[index] for index in which],
            "key": self.keys or repeat(None),
            "time": self.event_times,
        }
        for name, values in self.added.items():
            columns[name] = values if isinstance(values, list) else values.tolist()
        return map(self.row, *(columns[name] for name in self.row.__struct_encode_fields__))

    def text(self) -> memoryview | bytes:
        """Return the rows as lines of JSON."""
        if not issubclass(self.row, Recalibrated):
            return _encode_lines(list(self.rows()))
        runs = np.zeros(len(self.versions), np.intp)
        keys = StringColumn.of([None]).take(runs)
        if self.keys is not None:
            key_of = dict(zip(self.which.tolist(), self.keys, strict=True))
            keys = StringColumn.of([key_of.get(run) for run in range(len(runs))])
        versions = np.array(self.versions, np.int64)
        columns = self.scores, self.probabilities, self.times
        return answer_lines(self.ids, *columns, self.which, versions, self.weights, keys, self.added)


def answer_columns(block: Block, taken: Taken) -> AnswerColumns:
    """Return the answers to the predictions that were taken of a block."""
    at, whole, kept = taken.at, len(taken.at) == len(block), block.kept
    return AnswerColumns(
        block.ids if whole else block.ids.take(at),
        block.scores[at],
        taken.probabilities,
        None if block.keys is None else [block.keys[index] for index in at.tolist()],
        block.times[at],
        taken.versions,
        taken.weights,
        taken.which,
        kept if whole or kept is None else [kept[index] for index in at.tolist()],
        taken.drawn,
        taken.limits,
    )


class Answers(Sequence[Recalibrated]):
    """Rows of answers as columns, part after part."""

    __slots__ = ("parts",)

    def __init__(self, *parts: AnswerColumns) -> None:
        self.parts = [*parts]

    def text(self) -> bytes:
        """Return rows as lines of JSON."""
        return b"".join(part.text() for part in self.parts)

    def __len__(self) -> int:
        return sum(len(part.ids) for part in self.parts)

    def __iter__(self) -> Iterator[Recalibrated]:
        return chain.from_iterable(part.rows() for part in self.parts)

    def __getitem__(self, index: Any) -> Any:
        return next(islice(self, index, None)) if index == 0 else list(self)[index]


class RejectRow(msgspec.Struct, frozen=True):
    """A rejected input: where it was, and why it was rejected."""

    source: str
    """Path of the file, or topic and partition."""
    line: int
    """Line in the file, from 1, or offset in the partition."""
    code: Code
    reason: str
    raw: str
    """The rejected text; of a longer one the first 4096 bytes."""


class VersionRow(msgspec.Struct, frozen=True):
    """A map version that a run served, without the map."""

    version: int
    key: str | None
    """The key of the events that it is for; None: events without a key."""
    time: float | None
    """Event time of its publication, seconds since the epoch; None before the first event with a time."""
    weights: tuple[float, float]
    """Weights (w₀, w₁) of its shift correction."""
    certificate: msgspec.Raw = msgspec.Raw(b"null")
    """JSON of a `streamcal.Certificate`; ``null`` if nothing is certified, or none was worked out."""
    mixture: msgspec.Raw = msgspec.Raw(b"null")
    """JSON of a `streamcal.engine.emissions.Mixing`; ``null`` if the map is not a mixture."""


class MapRow(msgspec.Struct, frozen=True):
    """A map version that the run serves from now on; fields as in `VersionRow`."""

    version: int
    key: str | None
    time: float | None
    map: msgspec.Raw
    """JSON of a `streamcal.RecalibrationMap`."""
    certificate: msgspec.Raw = msgspec.Raw(b"null")
    mixture: msgspec.Raw = msgspec.Raw(b"null")
    segments: tuple[str, ...] = ()
    """Fields of `SegmentsConfig.fields`: if there are any, the run serves more than this map."""


class Version(NamedTuple):
    """A map version that began in a micro-batch; its map is formed when it is first read."""

    row: VersionRow
    published: MapPublished
    segments: tuple[str, ...]

    def with_map(self) -> MapRow:
        """Return its row with the map."""
        row, text = self.row, self.published.map.model_dump_json().encode()
        return MapRow(
            row.version, row.key, row.time, msgspec.Raw(text), row.certificate, row.mixture, self.segments
        )


class AlarmRow(msgspec.Struct):
    """An assumption that is refuted: one behind the certificates, or that forecasts are calibrated."""

    number: int
    """Number from 1 among the alarms of this key: those of certificates are numbered apart from those of
    forecasts. Key, code and number name one alarm of a store."""
    key: str | None
    """The key of the events that it is about; None: events without a key."""
    time: float | None
    """Event time at which it was raised, seconds since the epoch; None before the first event with a time."""
    code: AlarmCode
    assumption: str
    """The assumption, worded as in the certificates."""
    title: str
    """Finding, in a sentence."""
    reason: str
    """Evidence that refuted the assumption."""
    target_labels: int
    """Number of labels of the target so far."""
    advice: str
    """Consequences, and what to do."""

    @property
    def words(self) -> str:
        """The alarm as a line of the log."""
        which = "" if self.key is None else f" [{self.key}]"
        found = f"Refuted: {self.assumption} ({self.reason})."
        found = self.reason if self.code in OF_RUN else found
        return f"alarm{which}: {self.title} {found} {self.advice}".rstrip()


def reject_row(origin: Origin | None, why: Refusal) -> RejectRow:
    """Return the row of a reject; an event from no input has no origin."""
    if origin is None:
        return RejectRow("", 0, why.code, why.reason, "")
    raw = origin.raw.decode("utf-8", "backslashreplace")
    return RejectRow(origin.source, origin.line, why.code, why.reason, raw)


def version_of(emission: MapPublished, time: float | None, segments: tuple[str, ...]) -> Version:
    """Return the version that was published at an event time, by a run with these segments."""
    certificate, emission.claim = emission.certificate, None  # a claim holds counts of scores
    row = VersionRow(
        emission.version,
        emission.key,
        time,
        emission.weights,
        msgspec.Raw(b"null" if certificate is None else certificate.model_dump_json().encode()),
        msgspec.Raw(msgspec.json.encode(emission.mixture)),
    )
    return Version(row, emission, segments)


def alarm_rows(
    key: str | None, alarms: Sequence[DriftAlarm], time: float | None = None, before: int = 0
) -> list[AlarmRow]:
    """Return the rows of the alarms of a key but for the first so many, raised at an event time."""
    return [
        AlarmRow(
            number,
            key,
            time,
            alarm.code,
            alarm.assumption,
            _FOUND[alarm.code][0],
            alarm.reason,
            alarm.target_labels,
            _FOUND[alarm.code][1],
        )
        for number, alarm in enumerate(alarms[before:], before + 1)
    ]


def lost_alarm_row(number: int, row: RejectRow, time: float | None, labels: int) -> AlarmRow:
    """Return the row of the alarm, of this number, that records were lost, which a reject says."""
    return AlarmRow(
        number,
        None,
        time,
        "lost_records",
        "every record is read",
        f"Records of {row.source} were lost.",
        f"{row.reason}.",
        labels,
        "They were neither answered nor learned, and labels of predictions among them are rejected. Raise the"
        " retention of the topic.",
    )


def forecast_alarm_row(raised: Raised, time: float | None) -> AlarmRow:
    """Return the row of an alarm of the watch over forecasts, given the clock when it was raised."""
    verdict = raised.verdict
    labels = (verdict.since_label or 0) + verdict.labels
    return AlarmRow(
        raised.number,
        raised.key,
        time,
        "forecasts",
        CALIBRATED,
        verdict.sentence,
        verdict.evidence,
        labels,
        verdict.advice,
    )

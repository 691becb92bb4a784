"""Options of a run: of its engines, its join, its keys and its connectors; and what is wrong with options."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError, field_validator, model_validator

from streamcal.engine.config import EngineOptions, RecalibratorConfig, with_join
from streamcal.engine.segments.segments import check_fields
from streamcal.events.columns import WEIGHTS, Columns
from streamcal.join.config import JoinConfig
from streamcal.maps.rate_limits import LEAST, MOST
from streamcal.quality.decision_figures import DecisionRule
from streamcal.quality.decision_sums import DecisionSums
from streamcal.quality.decisions import MOST as MOST_ACTS
from streamcal.quality.decisions import Costs
from streamcal.run.added import Added, Decide, added_fields
from streamcal.sampling import Sampler

_MOST: Final = 10
_LONGEST: Final = 60  # characters of a value
_WANTED: Final = "Input should be "


class _Options(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)


class KeysConfig(_Options):
    """Options of the keys of a run; each key has an engine of its own."""

    limit: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Number of keys that a run may have; events with further keys are rejected."""

    memory: Annotated[ByteSize, Field(ge=1)] = ByteSize(2 << 30)
    """Bytes, such as ``"2GiB"``, that engines may take in memory, by an estimate. Those used last stay there.
    The others are kept as a tenth of the bytes, in the store, or in memory if there is no store."""

    certified: Annotated[int, Field(ge=0)] = 16
    """Up to this number of keys, maps are published with their certificates; beyond it, only the maps of
    events without a key are. A certificate costs as much time as thousands of events."""


class SegmentsConfig(_Options):
    """Fields of events within a key that share one engine; see `streamcal.Recalibrator`."""

    fields: Annotated[tuple[str, ...], Field(max_length=8, strict=False)] = ()
    """Names of the fields, such as ``country`` and ``device``; their corrections add up. Empty: none."""

    own_engines: Annotated[int, Field(ge=0, le=65_536)] = 64
    """Number of segments, those with most labels, that may have an engine of their own. With several fields
    none has one."""

    @field_validator("fields")
    @classmethod
    def _are_names(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        return check_fields(fields) if fields else fields


class SamplingConfig(_Options):
    """Budget of labels; each row of the output then says whether to label its prediction (`Sampler`)."""

    share: float | None = None
    """Share of the predictions to have labelled, on average."""

    labels_per_day: float | None = None
    """Number of predictions to have labelled in a day of event time, on average."""

    even: float = 0.25
    """Part of the budget that all predictions share alike; the rest goes where labels tell most."""

    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    """Seed of the draws."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.sampler is None and self != type(self).model_construct():  # the sampler checks its options
            raise ValueError("share or labels_per_day is missing, such as share = 0.03: nothing is sampled")
        return self

    @property
    def sampler(self) -> Sampler | None:
        """New sampler; None: nothing is sampled."""
        if self.share is None and self.labels_per_day is None:
            return None
        return Sampler(self.share, self.labels_per_day, self.even, self.seed)


class DecisionConfig(_Options):
    """Costs, or a capacity, by which predictions of two classes are decided; without either, they are not."""

    false_positive: float | None = None
    """Cost of acting where the label is 0."""
    false_negative: float | None = None
    """Cost of passing where the label is 1."""
    review: float | None = None
    """Cost of a review, whatever the label; None: there are none."""
    capacity_per_day: Annotated[int, Field(ge=1, le=MOST_ACTS)] | None = None
    """Number of decisions to act in a day of event time, instead of costs."""
    currency: Annotated[str, Field(max_length=16)] = ""
    """Unit of the costs, such as ``EUR``."""

    @property
    def rule(self) -> DecisionRule | None:
        """Rule; None: nothing is decided."""
        wrong, missed = self.false_positive, self.false_negative
        if wrong is not None and missed is not None:
            return DecisionRule(Costs(wrong, missed, self.review), currency=self.currency)
        return None if self.capacity_per_day is None else DecisionRule(None, self.capacity_per_day)

    @model_validator(mode="after")
    def _is_a_rule(self) -> Self:
        costs = [self.false_positive, self.false_negative, self.review, self.currency or None]
        if self.capacity_per_day is not None:
            if costs != [None] * 4:
                raise ValueError("capacity_per_day excludes costs and currency: leave it out, or them")
        elif self.rule is None and costs != [None] * 4:  # the rule checks its costs
            raise ValueError("false_positive and false_negative are both needed: costs of wrong decisions")
        return self


class IntervalsConfig(_Options):
    """Intervals of the rows: see `Recalibrator.predict_many`."""

    probability: Annotated[float, Field(ge=LEAST, le=MOST)] | None = None
    """Probability with which the interval of a row is to hold the rate of label 1 at its score."""


class RunConfig(_Options):
    """Options of a run: a table for each of its fields, and one for each connector."""

    recalibrator: RecalibratorConfig = RecalibratorConfig()
    join: JoinConfig = JoinConfig()
    keys: KeysConfig = KeysConfig()
    columns: Columns = Columns()
    connectors: dict[str, dict[str, Any]] = {}
    """Tables such as ``[kafka]`` by scheme; the connectors validate them."""
    segments: SegmentsConfig = SegmentsConfig()
    sampling: SamplingConfig = SamplingConfig()
    intervals: IntervalsConfig = IntervalsConfig()
    decision: DecisionConfig = DecisionConfig()

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        classes, fields = self.columns.classes, self.segments.fields
        weights = [role for role in WEIGHTS if role in self.columns.names]
        is_sampled = self.sampling.sampler is not None
        if self.decision.rule is not None and classes:
            raise ValueError(
                "[decision] is for two classes, and [columns] classes has more: decide by the rows"
            )
        if self.intervals.probability is not None and (classes or fields):
            raise ValueError(
                "[intervals] is for one score and two classes: leave it out with classes or segments"
            )
        if is_sampled and weights:
            raise ValueError(f"[sampling] draws propensities of its own: leave out [columns] {weights[0]}")
        if fields and (is_sampled or weights):
            other = "[sampling]" if is_sampled else f"[columns] {weights[0]}"
            raise ValueError(
                f"{other} and [segments] fields exclude each other: corrections of segments take every label"
                " once"
            )
        if is_sampled and (why := self.engines.config.why_unweighted):
            raise ValueError(f"[sampling] makes labels count for others: {why}")
        names = [field.name for each in self.added() for field in each.fields]
        if taken := [name for name in self.columns.keep if names.count(name) > 1]:
            raise ValueError(f"rows get a field {taken[0]!r} of their own: leave it out of [columns] keep")
        object.__setattr__(self, "columns", self.columns.with_segments(fields))
        return self

    def of_shard(self, shards: int) -> Self:
        """Return the options of one of so many runs: each has an equal part of a number in a day.

        Raises
        ------
        ValueError
            if a capacity is no multiple of the number of runs.
        """
        a_day, capacity = self.sampling.labels_per_day, self.decision.capacity_per_day
        sampling, decision = self.sampling, self.decision
        if a_day is not None:
            sampling = sampling.model_copy(update={"labels_per_day": a_day / shards})
        if capacity is not None:
            if capacity % shards:
                raise ValueError(
                    f"[decision] capacity_per_day: {shards} shards cannot share {capacity} equally: give a"
                    f" multiple of {shards}, such as {max(capacity // shards, 1) * shards}"
                )
            decision = decision.model_copy(update={"capacity_per_day": capacity // shards})
        return self.model_copy(update={"sampling": sampling, "decision": decision})

    def added(self, decide: Decide | None = None) -> list[Added]:
        """Return the fields that rows have beyond the answers; ``decide`` decides, by the rule if None."""
        if self.decision.rule is not None and decide is None:
            decide = DecisionSums(self.decision.rule).take
        intervals = self.intervals.probability is not None
        return added_fields(self.columns.keep, decide, self.sampling.sampler, intervals=intervals)

    @property
    def engines(self) -> EngineOptions:
        """Options of the engines; ValueError if they do not go together with those of the join."""
        fields, places = self.segments.fields, map(self.columns.carried.index, self.segments.fields)
        config, classes = with_join(self.recalibrator, self.join), self.columns.classes
        return EngineOptions(config, classes, fields, tuple(places), self.segments.own_engines)

    def shown(self) -> dict[str, Any]:
        """Return the options as JSON has them, without those of connectors, which may hold secrets."""
        return self.model_dump(mode="json", exclude={"connectors"})


def read_config(path: Path, connectors: Collection[str] = ()) -> RunConfig:
    """Read the options of a run from a TOML file.

    Parameters
    ----------
    path
        the file.
    connectors
        the schemes of the connectors, whose tables are allowed as well.

    Raises
    ------
    OSError
        if the file cannot be read.
    ValueError
        if it is not TOML, has an unknown option, or a value out of range. The message has one line a problem,
        with the file, the option and the value.
    """
    try:
        return _run_config(tomllib.loads(path.read_text("utf-8")), connectors)
    except ValidationError as error:
        found = problems(error, RunConfig, tables=True)
        raise ValueError("\n".join(f"{path}: {line}" for line in found.splitlines())) from error
    except (ValueError, RecursionError) as error:  # of TOML and UTF-8; of nesting
        raise ValueError(f"{path}: {error}") from error


def _run_config(tables: dict[str, Any], connectors: Collection[str]) -> RunConfig:
    own = [name for name in RunConfig.model_fields if name != "connectors"]
    for name, table in tables.items():
        # Only the name is shown: an unknown table may hold secrets.
        if name not in own and name not in connectors:
            known = ", ".join([*own, *sorted(connectors)])
            raise ValueError(f"unknown table [{name}]; known: {known}")
        if not isinstance(table, dict):
            raise ValueError(f"{name} must be a table")  # noqa: TRY004  # the file is wrong, not the call
    segments = tables.get("segments", {})
    if "own_engines" in segments and not segments.get("fields"):
        raise ValueError(
            f"[segments] own_engines: got {segments['own_engines']!r}, but there are no fields whose segments"
            ' could have engines: name one, such as fields = ["country"], or leave out the table'
        )
    mine = {name: table for name, table in tables.items() if name in own}
    others = {name: table for name, table in tables.items() if name not in own}
    return RunConfig.model_validate(mine | {"connectors": others})


def problems(error: ValidationError, model: type[BaseModel], *, tables: bool = False) -> str:
    """Return the problems that pydantic found with a model's fields, one line each.

    Parameters
    ----------
    tables
        whether the fields are the tables of a TOML file, written ``[table] option``.
    """
    found: dict[str, tuple[list[str], Any]] = {}
    meant = dict[str, str]()
    for each in error.errors(include_url=False):
        place = _place(each["loc"], tables=tables)
        rules, _ = found.setdefault(place, ([], each["input"]))
        rules.append(_rule(each["type"], each["msg"], each["loc"], model))
        meant[place] = _near(each) or meant.get(place, "")
    lines = [_line(place, rules, value) + meant[place] for place, (rules, value) in found.items()]
    if len(lines) > _MOST:
        lines[_MOST:] = [f"… and {len(lines) - _MOST} more"]
    return "\n".join(lines)


def _place(loc: tuple[int | str, ...], *, tables: bool) -> str:
    if tables and len(loc) > 1:  # behind table and option: the alternative that did not fit
        return f"[{loc[0]}] {loc[1]}"
    name, index = (*loc, "", "")[:2]
    return f"{name}[{index}]" if isinstance(index, int) else str(name)


def _rule(kind: str, message: str, loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"is not known{_meant(loc, model)}"
    if kind == "tuple_type":
        return "must be a list"
    message = message.removeprefix("Value error, ").replace("timedelta", "duration, such as '30d'")
    return f"must be {message.removeprefix(_WANTED)}" if message.startswith(_WANTED) else message


def _near(error: Mapping[str, Any]) -> str:
    """Return what was meant by a value that is none of a few words."""
    if error["type"] != "literal_error" or not isinstance(error["input"], str):
        return ""
    near = get_close_matches(error["input"], re.findall("'([^']*)'", error["ctx"]["expected"]), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _meant(loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    for table in loc[:-1]:
        inner = model.model_fields[str(table)].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return ""
        model = inner
    near = get_close_matches(str(loc[-1]), model.model_fields, 1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(model.model_fields)}"


def _line(place: str, rules: list[str], value: object) -> str:
    first, *others = rules
    text = ", or ".join([first, *(rule.removeprefix("must be ") for rule in others)])
    if place and not text.startswith("is "):  # the whole, which has no place, may hold secrets
        shown = repr(value)
        text += f"; got {shown if len(shown) <= _LONGEST else shown[:_LONGEST] + '…'}"
    return f"{place}: {text}" if place else text

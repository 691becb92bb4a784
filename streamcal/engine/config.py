"""The options of an engine: stated, documented and validated here and nowhere else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, Self, TypedDict, TypeVar, get_type_hints

import msgspec
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from streamcal.base.times import as_timedelta
from streamcal.engine.schedule import FIRST_LABELS
from streamcal.join.config import JoinConfig
from streamcal.sketch.decoding import Count

Mode = Literal["auto", "source", "label_shift", "target", "composite"]
"""Name of the estimator to serve: the paper's (section 5 and appendix E), or a mixture, ``"auto"``."""

PriorKind = Literal["labels", "scores"]
"""Evidence that the target's prior is estimated from."""

_Constructor = TypeVar("_Constructor", bound=Callable[..., None])


class RecalibratorConfig(BaseModel):
    """The options of `Recalibrator`, validated and frozen.

    Parameters
    ----------
    bins
        B, the number of bins. ``"auto"`` chooses it, and what is drawn through the bins, by cross-validation;
        ``"cube_root"`` is ⌊n^(1/3)⌋ for n labels; or the number, from 1 to 65,536. These two give the
        paper's map: one step for each bin, its label mean. In mode ``"auto"`` the option concerns only the
        maps formed beside the mixture: those that certify it, and the h_P under which scores tell of the
        prior.
    mode
        which map is served. ``"source"``: h_P, formed from source labels. ``"label_shift"``: g.
        ``"target"``: h_Q, formed from target labels. ``"composite"``: g∘h_P. ``"auto"``: a mixture
        of the score, of maps of the target with short and long memory, and of composites, weighed by their
        recent losses; before the first target label, of maps of the source (docs/drift.md). Without source
        labels, ``"source"``, ``"label_shift"`` and ``"composite"`` serve the score unchanged; without target
        labels, so does ``"target"``.
    window
        which labels form h: the latest so many, from 64 to 1,000,000,000; those of the latest stretch of
        event time, a `datetime.timedelta` (or a text, ``"12h"``, ``"30d"``, ISO 8601); or all, None. The
        window advances in steps of a sixteenth of its length. In mode ``"auto"`` the option limits the labels
        of the source's maps, and those behind certificates; maps of the target have memories of their own.
    prior
        what the target's class prior is estimated from. ``"labels"``: target labels, all or those of the
        ``window``; S positives among N labels give (S+½)/(N+1). In mode ``"auto"`` the composites take the
        last 300 labels, or all, and the source's prior for one more label. ``"scores"``: target scores since
        the last detected change, by maximum likelihood under h_P. A number in (0, 1): it is known to be
        that, before the first label. Scores are then corrected by eq. 13. Without source labels the shift is
        the one under which the forecasts have this mean. In mode ``"auto"`` labels overrule it.
    sampling_rate
        share in (0, 1] of the negatives that the model was trained on, and with which labels of the source
        were drawn, while it saw all positives: the odds of its scores are as many times too high. Scores are
        corrected by eq. 13 with (w₀, w₁) = (1, sampling_rate), before the first label. None: unknown.
    delta
        δ, at least 1e-100 and less than 1: certificates hold with probability at least 1 − δ over the whole
        life of the stream.
    label_delay_limit
        the option of that name of the join, which must be the same: within this time nearly all labels come,
        no label means 0, and positives come early. A `datetime.timedelta` of at least a second, or a
        text, ``"30d"``; None: no limit is known. Mode ``"auto"`` then also weighs maps of early positives,
        corrected for the time that their predictions had (docs/proofs/exposure.md); the other modes wait.
        Predictions count that have an event time and go through `Recalibrator.step` or a run.
    keeps_order
        of many classes only (docs/multiclass.md): whether the class with the highest score always gets the
        highest probability.

    Raises
    ------
    pydantic.ValidationError
        if an option is unknown or out of range; the message names the option and the value.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)

    bins: Literal["auto", "cube_root"] | Annotated[int, Field(ge=1, le=65_536)] = "auto"
    mode: Mode = "auto"
    window: Annotated[int, Field(ge=FIRST_LABELS, le=1_000_000_000)] | timedelta | None = None
    prior: PriorKind | Annotated[float, Field(gt=0.0, lt=1.0)] = "labels"
    sampling_rate: Annotated[float, Field(gt=0.0, le=1.0, strict=False)] | None = None
    delta: Annotated[float, Field(ge=1e-100, lt=1.0, strict=False)] = 0.1
    label_delay_limit: timedelta | None = None
    keeps_order: bool = False

    @field_validator("window", "label_delay_limit", mode="before")
    @classmethod
    def _duration(cls, value: object) -> object:
        """Parse a duration given as text, which a strict model would refuse."""
        return as_timedelta(value) if isinstance(value, str) else value

    @field_validator("window")
    @classmethod
    def _is_positive(cls, value: int | timedelta | None) -> int | timedelta | None:
        if isinstance(value, timedelta) and value <= timedelta(0):
            raise ValueError(f"a window must be longer than 0, got {value}")
        return value

    @field_validator("label_delay_limit")
    @classmethod
    def _is_long_enough(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and not timedelta(seconds=1) <= value <= timedelta(seconds=1e10):
            raise ValueError(f"a label delay limit is from 1 s to 10,000,000,000 s, got {value}")
        return value

    @model_validator(mode="after")
    def _knows_one_shift(self) -> Self:
        if self.sampling_rate is not None and isinstance(self.prior, float):
            raise ValueError(
                f"prior={self.prior} and sampling_rate={self.sampling_rate} both say how the classes shift:"
                " leave one out"
            )
        if self.shift_is_known and self.mode in ("source", "target"):
            raise ValueError(
                f"mode={self.mode!r} corrects no shift of the classes, so leave out sampling_rate and a known"
                " prior, or take the mode 'auto', 'composite' or 'label_shift'"
            )
        return self

    @property
    def shift_is_known(self) -> bool:
        """Whether the shift of the classes is known before the first label."""
        return self.sampling_rate is not None or isinstance(self.prior, float)

    def to_bytes(self) -> bytes:
        """Return the options as JSON."""
        return self.model_dump_json().encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> RecalibratorConfig:
        """Return the options of `to_bytes`; pydantic.ValidationError if the bytes are none."""
        return cls.model_validate_json(data)

    @property
    def delay_limit_seconds(self) -> float | None:
        """``label_delay_limit`` in seconds; None if it is not set."""
        return None if self.label_delay_limit is None else self.label_delay_limit.total_seconds()

    @property
    def needs_source(self) -> bool:
        """Whether the mode serves the score unchanged as long as there are no labels of the source."""
        return self.mode in ("source", "label_shift", "composite") and not self.shift_is_known

    def check_many(self) -> None:
        """Raise ValueError if an option is of two classes only."""
        if self.label_delay_limit is not None:
            raise ValueError(
                "classes and label_delay_limit exclude each other: a missing label points to none of many"
                " classes"
            )
        if self.shift_is_known:
            raise ValueError("classes exclude sampling_rate and a known prior: these are of one score")

    def check_binary(self) -> None:
        """Raise ValueError if an option is of many classes only."""
        if self.keeps_order:
            raise ValueError(
                "keeps_order=True is for many classes: name them in classes, or leave it out; the map of one"
                " score keeps its order in the other modes than 'auto'"
            )

    @property
    def why_ordered(self) -> str | None:
        """Reason why the order of labels matters, so that no sketch can be learned; None if it does not."""
        if self.mode == "auto":
            return "mode='auto' learns one label after the other: its mixture weighs forecasts in their order"
        if self.window is not None:
            return (
                f"window={self.window!r} keeps the latest labels, and a sketch does not know which these are"
            )
        if self.prior != "labels":
            return f"prior={self.prior!r} follows the scores in their order"
        return None

    @property
    def why_unweighted(self) -> str | None:
        """Reason why labels must not have weights; None if they may."""
        if self.label_delay_limit is not None:
            return "with label_delay_limit, a label that is missing means 0, not that it was left out"
        return None

    @property
    def needs_time(self) -> bool:
        """Whether labels need an event time: their window is a duration."""
        return isinstance(self.window, timedelta)


class EngineOptions(msgspec.Struct, frozen=True):
    """All options of engines of one kind, by which `streamcal.engine.recalibrator.engine_of` makes them.

    ValueError if two of them exclude each other.
    """

    config: RecalibratorConfig
    """Options of each engine."""
    classes: tuple[str, ...] = ()
    """Names of many classes, whose scores are the last values that an event keeps; empty: two classes."""
    fields: tuple[str, ...] = ()
    """Names of the fields that make segments; empty: there are none."""
    places: tuple[Count, ...] = ()
    """Index of the value of each field among those that an event keeps."""
    own_engines: Count = 0
    """Number of segments that may have an engine of their own."""

    def __post_init__(self) -> None:
        """Check the options."""
        if not self.classes:
            self.config.check_binary()
        elif self.fields:
            raise ValueError(
                "classes and segments exclude each other: corrections of segments are for one score"
            )
        else:
            self.config.check_many()


class RecalibratorOptions(TypedDict, total=False):
    """Options of `RecalibratorConfig` as keyword arguments, for editors and type checkers."""

    bins: Literal["auto", "cube_root"] | int
    mode: Mode
    window: int | timedelta | None
    prior: PriorKind | float
    sampling_rate: float | None
    delta: float
    label_delay_limit: timedelta | None
    keeps_order: bool


def with_join(config: RecalibratorConfig, join: JoinConfig) -> RecalibratorConfig:
    """Return the options of an engine behind a join: with the join's ``label_delay_limit``.

    Raises
    ------
    ValueError
        if the engine has another ``label_delay_limit``. The message says which option to change.
    """
    limit = None if join.label_delay_limit is None else timedelta(seconds=join.label_delay_limit)
    if config.label_delay_limit not in (None, limit):
        raise ValueError(
            f"label_delay_limit is {config.label_delay_limit} of the recalibrator, but"
            f" {'not set' if limit is None else limit} of the join: set that of the join only"
        )
    return config if limit is None else config.model_copy(update={"label_delay_limit": limit})


def every_option(given: Mapping[str, object]) -> dict[str, Any]:
    """Return the value of every option: the given one, or the default. Values are not validated.

    Raises
    ------
    TypeError
        if an option is unknown.
    """
    fields = RecalibratorConfig.model_fields
    unknown = sorted(set(given) - set(fields))
    if unknown:
        near = "".join(f"did you mean {name!r}? " for name in get_close_matches(unknown[0], fields, 1))
        raise TypeError(f"unknown option {unknown[0]!r}: {near}the options are {', '.join(fields)}")
    return {name: given.get(name, field.default) for name, field in fields.items()}


def unlike(before: EngineOptions, now: EngineOptions) -> str:
    """Return the options in which two differ, for a message: ``name (before, now value)``; empty if none."""
    olds, news = (
        {
            **options.config.model_dump(),
            "classes": options.classes,
            "segments": options.fields,
            "own_engines": options.own_engines,
        }
        for options in (before, now)
    )
    names = [name for name in news if olds[name] != news[name]]
    return ", ".join(f"{name} ({olds[name]!r}, now {news[name]!r})" for name in names)


def names_options(constructor: _Constructor) -> _Constructor:
    """Decorate a constructor that takes ``**options``: its signature then names each, with its default.

    `help`, notebooks, river and scikit-learn read that signature; type checkers read the annotation
    ``Unpack[RecalibratorOptions]``.
    """
    signature = inspect.signature(constructor)
    types = get_type_hints(RecalibratorOptions)
    own = [given for given in signature.parameters.values() if given.kind is not given.VAR_KEYWORD]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[name])
        for name, field in RecalibratorConfig.model_fields.items()
    ]
    constructor.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return constructor

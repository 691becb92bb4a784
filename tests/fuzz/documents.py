"""Maps, certificates and options, as JSON from anywhere: changed, validated and used."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np
from pydantic import BaseModel, ValidationError

from streamcal import Certificate, JoinConfig, RecalibrationMap, Recalibrator
from streamcal.engine.config import RecalibratorConfig
from streamcal.run.apply import Maps
from streamcal.run.config import KeysConfig
from tests.fuzz.harness import RefusedError
from tests.fuzz.mutate import change_scalar, change_text, change_tree
from tests.fuzz.states import OPTIONS, make
from tests.inside import memos_of
from tests.memory import Log, MemoryFeed

_SCORES: Final = np.linspace(0.0, 1.0, 300)


@cache
def engines() -> tuple[Recalibrator, ...]:
    rng = np.random.default_rng(5)
    return tuple(make(options, n, rng) for options in OPTIONS for n in (0, 300))


@cache
def models() -> tuple[BaseModel, ...]:
    made = [Certificate.model_validate(each.certificate) for each in engines() if each.certificate]
    options = [each.config for each in engines()]
    return (*made, *options, JoinConfig(label_ttl=3.5), KeysConfig(limit=5))


def try_map(rng: random.Random) -> int:
    """Try a changed map, as of ``apply --map``."""
    data = _changed(rng.choice(engines()).map.model_dump_json().encode(), rng)
    try:
        found = RecalibrationMap.model_validate_json(data)
    except ValidationError as error:
        raise RefusedError(str(error.errors()[0]["msg"])) from None
    _use(found)
    assert RecalibrationMap.model_validate_json(found.model_dump_json()) == found
    return len(_SCORES)


def try_map_row(rng: random.Random) -> int:
    """Try a changed line of ``--maps``, as of ``apply --follow``: one that is no map is passed over."""
    own = rng.choice(engines()).map
    row = {"version": own.version, "key": "k", "time": 1.5, "map": json.loads(own.model_dump_json())}
    log = Log()
    log.partitions[""] = [_changed(json.dumps(row).encode(), rng)]
    maps = Maps(MemoryFeed(log))
    if not maps.update(0.0):
        raise RefusedError("not a map")
    found = maps.get("k") or maps.get(None)
    if found is not None:
        _use(found)
    assert maps.description
    return len(_SCORES)


def try_model(rng: random.Random) -> int:
    """Try a changed certificate, or changed options, as JSON."""
    model = rng.choice(models())
    try:
        found = type(model).model_validate_json(_changed(model.model_dump_json().encode(), rng))
    except ValidationError as error:
        raise RefusedError(str(error.errors()[0]["msg"])) from None
    assert type(model).model_validate_json(found.model_dump_json()) == found
    repr(found)
    if isinstance(found, RecalibratorConfig):
        if found.delay_limit_seconds is not None:  # of a join
            found = found.model_copy(update={"label_delay_limit": None})
        found = found.model_copy(update={"keeps_order": False})  # of many classes
        engine = Recalibrator(found)
        engine.learn_many(_SCORES, _SCORES > 0.5, "source", times=np.arange(300.0))
        engine.observe_many(_SCORES)
        engine.learn_many(
            _SCORES, _SCORES > 0.5, "target", times=np.arange(300.0), memos=memos_of(0, len(_SCORES > 0.5))
        )
        assert Recalibrator.from_bytes(engine.to_bytes()).to_bytes() == engine.to_bytes()
    return 1


def _use(found: RecalibrationMap) -> None:
    probabilities = found.predict_many(_SCORES)
    assert ((probabilities >= 0.0) & (probabilities <= 1.0)).all()
    assert [found.predict_one(score) for score in _SCORES[::50].tolist()] == probabilities[::50].tolist()
    msgspec.json.encode((found.version, found.weights))  # as a row of answers says
    found._repr_html_()  # as a notebook shows


def _changed(data: bytes, rng: random.Random) -> bytes:
    """Return a JSON document with a few values, or some of its text, changed."""
    if rng.random() < 0.4:
        for _ in range(rng.choice((1, 1, 3))):
            data = change_text(data, rng)
        return data
    tree: Any = [json.loads(data)]
    for _ in range(rng.choice((1, 1, 3))):
        change_tree(tree, rng, change_scalar)
    try:
        return json.dumps(tree[0] if tree else None).encode()
    except (TypeError, ValueError):
        raise RefusedError("cannot be written as JSON") from None

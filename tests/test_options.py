"""The options of an engine: typed at the call, documented in one place, the same everywhere."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

from streamcal import Recalibrator, RecalibratorConfig, RecalibratorOptions


def test_the_typed_options_are_those_of_the_config() -> None:
    of_config = get_type_hints(RecalibratorConfig)
    assert get_type_hints(RecalibratorOptions) == {
        name: of_config[name] for name in RecalibratorConfig.model_fields
    }
    assert list(get_type_hints(RecalibratorOptions)) == list(RecalibratorConfig.model_fields)


def test_the_signature_names_every_option_with_its_default() -> None:
    parameters = inspect.signature(Recalibrator).parameters
    options = {name: parameters[name].default for name in RecalibratorConfig.model_fields}
    assert options == RecalibratorConfig().model_dump()
    assert set(parameters) - set(options) == {"config", "classes", "segments", "own_engines", "join"}


def test_an_engine_shows_as_one_line() -> None:
    engine = Recalibrator(mode="composite")
    engine.learn_many([0.1, 0.9] * 5_000, [0, 1] * 5_000, "source")
    engine.learn_many([0.2, 0.8], [0, 1], "target")
    engine.observe_many([0.5] * 1_234)
    assert repr(engine) == (
        f"Recalibrator(mode='composite', version={engine.version}, "
        "source=10,000 labels, target=2 labels, predictions=1,234)"
    )


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="modez"):
        Recalibrator(modez="target")  # type: ignore[call-arg]

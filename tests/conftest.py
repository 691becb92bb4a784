"""Settings of every test."""

from __future__ import annotations

import atexit
import gc
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

import streamcal
from tests.browser import chromium  # noqa: F401  # a fixture

# A time limit per example would fail on a machine whose cores are taken, and nothing else.
settings.register_profile(
    "streamcal", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
for name, examples in (("quick", 15), ("night", 100)):  # of `make quick` and `make test-all`
    settings.register_profile(name, settings.get_profile("streamcal"), max_examples=examples)
settings.load_profile("streamcal")


ROOT = Path(__file__).parents[1]

SHARED = (
    *("tests/connectors/kafka/", "tests/connectors/objects/"),
    *("tests/spark/", "tests/monitor/"),
)
"""Tests that share a broker, an object store, a JVM, a browser or a run."""


class OneBroker(LoadScopeScheduling):
    """Give every worker one test after the other, but all tests that share something to the same.

    ``--dist loadgroup`` is for this, but pytest-xdist 3.8 cannot tell groups under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in SHARED if nodeid.startswith(folder)), nodeid)


def pytest_configure() -> None:
    """Refuse to test what was compiled of an older file."""
    for types in ROOT.glob("streamcal/**/*_c.pxd"):
        compiled = types.with_suffix(EXTENSION_SUFFIXES[0])
        newest = max(path.stat().st_mtime for path in (types, types.with_suffix(".py")))
        if compiled.exists() and compiled.stat().st_mtime < newest:
            pytest.exit(f"{compiled} was compiled of an older file than is there now: run `make venv`", 2)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneBroker:
    return OneBroker(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that use the browser; skip what takes minutes where nothing is compiled.

    That the same comes out there is for tests/test_compiled.py. Where there are several workers, they begin
    with what takes long, so that they end at about the same time.
    """
    reason = "it takes minutes where nothing is compiled: there was no C compiler at the installation"
    for item in items:
        if isinstance(item, pytest.Function) and "chromium" in item.fixturenames:
            item.add_marker("browser")
        if not streamcal.compiled and takes_long(item):
            item.add_marker(pytest.mark.skip(reason=reason))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not (takes_long(item) or item.nodeid.startswith(SHARED)))


def pytest_collection_finish() -> None:
    """Spare the garbage collector all that was imported: a million objects, in every full collection."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # else extension modules report what was never collected


def takes_long(item: pytest.Item) -> bool:
    return any(map(item.get_closest_marker, ("statistical", "slow", "crash")))

"""One session of Spark for all tests; without PySpark or Java they are skipped, but fail under CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/spark/"):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if not os.environ.get("CI"):
        pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            pytest.skip("needs Java 17 or newer for Spark")
    from tests.spark.session import local_session

    session = local_session()
    yield session
    session.stop()

"""A small Spark on this machine."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

SETTINGS = {
    # The test's JVM is short-lived: compiling it well would take longer than it runs.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


def local_session(master: str = "local[2]", **settings: str) -> SparkSession:
    """Start Spark, or return the session that runs; dots of a setting are written as ``__``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the workers; else the first `python3` of the path
    builder = SparkSession.builder.master(master).appName("streamcal tests")
    given = {name.replace("__", "."): value for name, value in settings.items()}
    for name, value in (SETTINGS | given).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

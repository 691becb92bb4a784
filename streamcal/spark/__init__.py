"""Recalibration on Apache Spark: apply a map to a column, fit a year of logs, run a stream.

The package must be installed on the executors as well.
"""

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(
        "streamcal.spark needs PySpark: pip install '.[spark]' in a checkout of streamcal"
    ) from error

from streamcal.spark.column import recalibrated
from streamcal.spark.engine_column import recalibrated_by
from streamcal.spark.fit import learn
from streamcal.spark.stream import Batch, StreamState, read_state, recalibrate_stream

__all__ = [
    "Batch",
    "StreamState",
    "learn",
    "read_state",
    "recalibrate_stream",
    "recalibrated",
    "recalibrated_by",
]

"""Apache Kafka: topics as sources and sinks, exactly once through transactions."""

import warnings

try:
    with warnings.catch_warnings():
        # It reads its schemas with importlib.resources.read_text, which Python 3.11 and 3.12 deprecate.
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka  # noqa: F401
except ImportError:
    raise ValueError(
        "kafka:// needs kafka-python: pip install '.[kafka]' in a checkout of streamcal"
    ) from None

"""The Kafka fixtures, for every test in this directory.

No ``__init__.py`` here: this directory would then be the package ``kafka`` and hide kafka-python.
"""

from kafka_fixture import kafka_broker, killable_broker, new_topic

__all__ = ["kafka_broker", "killable_broker", "new_topic"]

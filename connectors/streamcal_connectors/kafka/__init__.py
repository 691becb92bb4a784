"""Apache Kafka: topics as sources and sinks, exactly once by transactions."""

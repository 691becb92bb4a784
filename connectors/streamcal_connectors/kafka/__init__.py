"""Apache Kafka: topics as sources and sinks, exactly once through transactions."""

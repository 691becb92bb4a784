"""Benchmarks of streams and maps on Spark."""

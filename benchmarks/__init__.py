"""Measurements of speed, growth, tails and quality; docs/benchmarks.md says what each is for."""

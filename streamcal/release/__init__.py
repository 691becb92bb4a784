"""Release of labels to the engine: both classes equally complete, though one is told later than the other.

A label waits while its class is more complete among the predictions of its time than the other class is. See
docs/proofs/release.md.
"""

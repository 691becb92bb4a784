"""Release of labels to the engine: both classes equally complete, though labels of one come later.

A label waits while its class is more complete among the predictions of its time than the other class is. See
docs/proofs/release.md.
"""

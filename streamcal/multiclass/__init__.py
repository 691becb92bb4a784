"""Many classes: K scores that sum to 1 become K probabilities that sum to 1, and follow a stream of labels.

Imports engine, mixture, sketch and the ground floor.
"""

"""Many classes: K scores that sum to 1 become K probabilities that do, and follow a stream of labels."""

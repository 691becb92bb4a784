"""A run: sources through join and engines into sinks and a store, exactly once."""

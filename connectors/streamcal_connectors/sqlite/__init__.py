"""SQLite: one file that keeps the state of a run."""

"""A report of a run: one HTML file, which asks for nothing, and the same as JSON."""

"""Labels of which only the positives are told, and late: how many are still to come.

See `docs/architecture.md`.
"""

"""The engine: learns labels, forms maps on schedule, serves them.

Imports every room above but run.
"""

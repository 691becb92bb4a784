"""Certified bounds on risk: the paper's theorems, ours, and the tests of what they assume.

Imports errors, events, sketch and maps.
"""

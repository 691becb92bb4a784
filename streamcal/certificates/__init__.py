"""Certified bounds on risk: the paper's theorems, our own bounds, and the tests of what they assume.

May import errors, events, sketch and maps.
"""

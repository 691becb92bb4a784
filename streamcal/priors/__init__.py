"""Tracking the class prior of the target, from labels, from scores, or from both.

Imports errors, events, sketch and maps.
"""

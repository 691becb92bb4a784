"""Tracking the class prior of the target from its scores.

Imports errors, events, sketch and maps.
"""

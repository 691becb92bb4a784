"""Segments that share: one pooled engine, and for each segment a small correction on the logit.

Segments are fields of an event, such as country and device, that share one model and one engine.
"""

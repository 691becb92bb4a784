"""Recalibration maps: uniform-mass bins, Platt scaling, and the label-shift correction."""

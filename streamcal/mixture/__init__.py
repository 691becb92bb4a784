"""Mode ``auto``: candidate maps on windows of labels, weighed by their losses.

Imports errors, events, sketch and maps.
"""

"""The class prior of the target: from labels, from scores, or from both, as it moves.

Imports errors, events, sketch and maps.
"""

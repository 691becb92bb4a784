"""Delayed feedback: rates from positives that come late, while negatives are never reported.

A positive that comes before its label is final is an *early positive*. Time is cut into *panes*. A prediction
counts as far as its positive could have come by now: that part is its *exposure*. See
docs/proofs/exposure.md.
"""

"""Labels that come late: when one is learned, and what positives say before their labels are final.

*Release*: a label waits while its class is more complete among the predictions of its time than the other
class is, so that both are learned equally complete. See docs/proofs/release.md.

*Early positives*, where negatives are never reported: time is cut into *panes*, and a prediction counts as
far as its positive could have come by now, its *exposure*. See docs/proofs/exposure.md.
"""

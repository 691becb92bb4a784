"""Fuzzing: inputs that are nearly right go through every decoder, and only documented errors may come out.

`mutate` changes values, bytes and text; `trees` takes states apart and packs them again with right checksums.
`states`, `documents` and `lines` make valid inputs, change them, and use what was accepted.
`harness` counts, and limits memory and time. ``python -m tests.fuzz`` runs them all; so does ``make fuzz``.
"""

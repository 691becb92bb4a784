"""Limits of the clients, the same with either library."""

from __future__ import annotations

from typing import Final

CLOSE_SECONDS: Final = 5.0
"""Longest time that a client may take to close."""
FETCH_WAIT_MS: Final = 250
"""Longest time that a broker waits for records to send."""
FETCH_BYTES: Final = 32 << 20
"""Records that are held of one broker, in bytes, unless a single batch of records is larger."""
PARTITION_FETCH_BYTES: Final = 4 << 20
"""Records of one partition among them, in bytes."""
LINGER_MS: Final = 1000
"""Longest time that a batch waits to be full; the flush before a commit sends those that are not."""
REQUEST_BYTES: Final = 64 << 20
"""Largest request: above any topic's limit, because the broker knows that better than the client."""
TRANSACTION_SECONDS: Final = 60.0
"""Longest time that a transaction may be open before the broker aborts it."""

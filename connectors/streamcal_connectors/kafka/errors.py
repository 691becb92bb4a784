"""The errors of Kafka clients: kafka-python's, which every client here raises, and what they mean."""

from __future__ import annotations

import re
import ssl
from typing import Final

from kafka.errors import KafkaError

__all__ = ["KafkaError", "brief", "error_names", "is_out_of_range", "is_permanent"]

_PERMANENT: Final = frozenset(
    {
        "AuthorizationError",
        "IllegalSaslStateError",
        "InvalidRecordError",
        "InvalidTimestampError",
        "InvalidTopicError",
        "InvalidTransactionTimeoutError",
        "MessageSizeTooLargeError",
        "OffsetMetadataTooLargeError",
        "PolicyViolationError",
        "RecordListTooLargeError",
        "SaslAuthenticationFailedError",
        "SecurityDisabledError",
        "UnsupportedCodecError",
        "UnsupportedForMessageFormatError",
        "UnsupportedSaslMechanismError",
        "UnsupportedVersionError",
    }
)  # waiting does not help
_OUT_OF_RANGE: Final = frozenset({"LogTruncationError", "NoOffsetForPartitionError", "OffsetOutOfRangeError"})
_NAMED: Final = re.compile(r"\w+Error\b")

_PASSING_TLS: Final = (ssl.SSLEOFError, ssl.SSLSyscallError, ssl.SSLZeroReturnError)
_TLS: Final = re.compile(r"\[SSL: (?!UNEXPECTED_EOF|\w*INTERNAL_ERROR)|\[X509|\[PEM")  # in a client's words


def error_names(error: BaseException | None) -> set[str]:
    """Return the names of an error's classes, and of the error whose text the client has wrapped, if any."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return names | set(_NAMED.findall(str(error))) if type(error) is KafkaError else names


def is_permanent(error: BaseException | None) -> bool:
    """Whether the error is one that waiting and trying again cannot help."""
    if isinstance(error, ssl.SSLError):
        # The two sides spoke and did not agree: a certificate, a protocol version. An end in mid-handshake
        # and an internal error may pass.
        return not isinstance(error, _PASSING_TLS) and "INTERNAL_ERROR" not in str(error)
    if error is not None and _TLS.search(str(error)):
        return True
    return not _PERMANENT.isdisjoint(error_names(error))


def is_out_of_range(error: BaseException) -> bool:
    """Whether the error says that an offset to read does not exist."""
    return not _OUT_OF_RANGE.isdisjoint(error_names(error))


def brief(error: BaseException) -> str:
    """Format an error on one line."""
    name, text = type(error).__name__, " ".join(str(error).split())
    if not text:
        return name
    return text if name in text else f"{name}: {text}"

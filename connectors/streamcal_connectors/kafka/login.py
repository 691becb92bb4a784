"""Whether a broker lets us in: one connection of our own, through TLS and SASL if they are asked for.

kafka-python does not tell a refusal from an absent broker reliably. Its transport drops what it has received
when the end of the stream comes with it, so on a busy machine the broker's "authentication failed" is lost,
and its clients then retry until their time is over. A blocking socket reads the refusal first, always.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from streamcal_connectors.kafka.errors import (
    KafkaError,
    WrongProtocolError,
    authentication_error,
    is_permanent,
)
from streamcal_connectors.kafka.kafka_python import sasl_client

__all__ = ["connect", "log_in"]

_CONNECT_SECONDS: Final = 2.0
_LEAST_BYTES, _MOST_BYTES = 6, 1 << 20  # of a response: at least its header and an error code
_METADATA, _SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 3, 17, 18, 36
_ILLEGAL_SASL_STATE: Final = 34


def connect(hosts: Sequence[str]) -> None:
    """Return if one of the hosts (``host:port``) accepts connections; otherwise raise OSError."""
    _first_of(hosts, lambda host: _open(host).close())


def log_in(hosts: Sequence[str], options: Mapping[str, Any], seconds: float) -> None:
    """Return if one of the hosts lets us in; say why otherwise.

    Parameters
    ----------
    hosts
        ``host:port`` of some brokers.
    options
        kafka-python's options of a connection: ``ssl_context``, ``sasl_mechanism`` and what belongs to them.
    seconds
        how long a host may take for one answer.

    Raises
    ------
    KafkaError, OSError
        the refusal of a host, which `is_permanent` recognises; if none refuses, why the last cannot be
        reached.
    """
    _first_of(hosts, lambda host: _log_in(host, options, seconds))


def _first_of(hosts: Sequence[str], attempt: Callable[[str], None]) -> None:
    met: Exception | None = None
    for host in hosts:
        try:
            attempt(host)
        except (KafkaError, OSError) as error:
            if met is None or not is_permanent(met):
                met = error
        else:
            return
    if met is not None:
        raise met


def _address(host: str) -> tuple[str, int]:
    name, _, port = host.rpartition(":")
    return name.strip("[]"), int(port)


def _open(host: str) -> socket.socket:
    return socket.create_connection(_address(host), timeout=_CONNECT_SECONDS)


def _log_in(host: str, options: Mapping[str, Any], seconds: float) -> None:
    context: ssl.SSLContext | None = options.get("ssl_context")
    try:
        with _session(host, context, seconds) as session:
            _authenticate(session, options)
    except (ConnectionError, ssl.SSLError) as error:
        if is_permanent(error):
            raise
        wrong = _mismatch(host, context, seconds)
        if wrong is None:
            raise
        raise WrongProtocolError(f"{host} {wrong}: correct security_protocol") from None


@contextmanager
def _session(host: str, context: ssl.SSLContext | None, seconds: float) -> Iterator[_Session]:
    with _open(host) as link:
        link.settimeout(seconds)
        if context is None:
            yield _Session(link)
        else:
            with context.wrap_socket(link, server_hostname=_address(host)[0].rstrip(".")) as secured:
                yield _Session(secured)


def _mismatch(host: str, context: ssl.SSLContext | None, seconds: float) -> str | None:
    """Return what a listener speaks that hung up on us, if that is not what we speak.

    A listener hangs up alike on a client that speaks another protocol, and when its broker is shut down. Only
    when it answers in the other protocol is it sure which.
    """
    with suppress(OSError):
        if context is None:
            anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
            try:
                with _session(host, anyone, seconds):
                    return "speaks TLS"
            except ssl.SSLError as error:
                if "ALERT" in str(error):
                    return "speaks TLS"
        else:
            with _session(host, None, seconds) as session:
                session.ask(_API_VERSIONS, 0, b"")
                return "does not speak TLS"
    with suppress(OSError), _session(host, context, seconds) as session:
        answer = session.ask(_SASL_HANDSHAKE, 1, _string(b"PLAIN"))
        if struct.unpack_from(">h", answer)[0] != _ILLEGAL_SASL_STATE:
            return "asks for a SASL login"
    return None


class _Session:
    """Requests to a broker, one after the other."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def ask(self, api: int, version: int, body: bytes) -> bytes:
        """Return the body of the response to a request."""
        message = struct.pack(">hhih", api, version, 0, -1) + body  # -1: no client id
        self._link.sendall(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", self._read(4))
        if not _LEAST_BYTES <= size <= _MOST_BYTES:
            raise ConnectionError(f"this is not a Kafka broker: it sends a response of {size} bytes")
        return self._read(size)[4:]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._link.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data


def _authenticate(session: _Session, options: Mapping[str, Any]) -> None:
    """Go through SASL if it is asked for.

    Without it, ask for the API versions: in TLS 1.3, a broker that refuses this client's certificate says so
    only after the client's side of the handshake is complete. Then ask for metadata: where a listener asks
    for a login, it answers the first and hangs up on the second.
    """
    name = options.get("sasl_mechanism")
    if name is None:
        session.ask(_API_VERSIONS, 0, b"")
        session.ask(_METADATA, 4, struct.pack(">i?", 0, False))  # of no topic
        return
    answer = session.ask(_SASL_HANDSHAKE, 1, _string(name.encode()))
    (code,) = struct.unpack_from(">h", answer)
    if code == _ILLEGAL_SASL_STATE:
        raise WrongProtocolError("the broker asks for no SASL login there: correct security_protocol")
    if code:
        raise authentication_error(f"the broker does not offer the sasl_mechanism {name}")
    client = sasl_client(name, options)
    while not client.is_done():
        token = client.auth_bytes()
        answer = session.ask(_SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        code, size = struct.unpack_from(">hh", answer)
        text, token = answer[4 : 4 + max(size, 0)], answer[8 + max(size, 0) :]
        if code:
            raise authentication_error(text.decode("utf-8", "replace") or f"error code {code}")
        try:
            client.receive(token)
        except ValueError as error:
            raise authentication_error(f"the broker's answer does not prove who it is: {error}") from None


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text

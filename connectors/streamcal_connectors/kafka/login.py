"""Whether a broker lets us in: one connection of our own, through TLS and SASL if they are asked for.

kafka-python does not tell a refusal from an absent broker reliably. Its transport drops what it has received
when the end of the stream comes with it, so on a busy machine the broker's "authentication failed" is lost,
and its clients then retry until their time is over. A blocking socket reads the refusal first, always. The
requests are kafka-python's.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from kafka.errors import IllegalSaslStateError, SaslAuthenticationFailedError, for_code
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from streamcal_connectors.kafka.errors import KafkaError, WrongProtocolError, is_permanent

__all__ = ["log_in"]

_CONNECT_SECONDS: Final = 2.0
_MOST_BYTES: Final = 1 << 20  # of a response


def log_in(
    hosts: Sequence[str], options: Mapping[str, Any], seconds: float, *, connect_only: bool = False
) -> None:
    """Return if one of the hosts lets us in; say why otherwise.

    Parameters
    ----------
    hosts
        ``host:port`` of some brokers.
    options
        kafka-python's options of a connection: ``ssl_context``, ``sasl_mechanism`` and what belongs to them.
    seconds
        how long a host may take for one answer.
    connect_only
        whether it is enough that a host accepts connections.

    Raises
    ------
    KafkaError, OSError
        the refusal of a host, which `is_permanent` recognises; if none refuses, why the last cannot be
        reached.
    """
    met: Exception = ConnectionError("no hosts")
    for host in hosts:
        try:
            return _connected(host).close() if connect_only else _log_in(host, options, seconds)
        except (KafkaError, OSError) as error:
            if not is_permanent(met):
                met = error
    raise met


def _log_in(host: str, options: Mapping[str, Any], seconds: float) -> None:
    context: ssl.SSLContext | None = options.get("ssl_context")
    try:
        with _session(host, context, seconds) as session:
            session.authenticate(options)
    except (ConnectionError, ssl.SSLError) as error:
        if is_permanent(error):
            raise
        wrong = _mismatch(host, context, seconds)
        if wrong is None:
            raise
        raise WrongProtocolError(f"{host} {wrong}: correct security_protocol") from None


def _connected(host: str) -> socket.socket:
    name, _, port = host.rpartition(":")
    return socket.create_connection((name.strip("[]"), int(port)), timeout=_CONNECT_SECONDS)


@contextmanager
def _session(host: str, context: ssl.SSLContext | None, seconds: float) -> Iterator[_Session]:
    with _connected(host) as link:
        link.settimeout(seconds)
        if context is None:
            yield _Session(link)
        else:
            name = host.rpartition(":")[0].strip("[]").rstrip(".")
            with context.wrap_socket(link, server_hostname=name) as secured:
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
                session.ask(ApiVersionsRequest(version=0))
                return "does not speak TLS"
    with suppress(OSError), _session(host, context, seconds) as session:
        answer = session.ask(SaslHandshakeRequest(mechanism="PLAIN", version=1))
        if for_code(answer.error_code) is not IllegalSaslStateError:
            return "asks for a SASL login"
    return None


class _Session:
    """Requests to a broker, one after the other."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._protocol = KafkaProtocol(client_id="streamcal", receive_message_max_bytes=_MOST_BYTES)

    def ask(self, request: Any) -> Any:
        """Return the response to a request."""
        self._protocol.send_request(request, correlation_id=0)
        self._link.sendall(self._protocol.send_bytes())
        while data := self._link.recv(_MOST_BYTES):
            try:
                responses = self._protocol.receive_bytes(data)
            except Exception as error:  # whatever the bytes do to the library
                raise ConnectionError(f"this is not a Kafka broker: {error}") from None
            for _, response in responses:
                return response
        raise ConnectionError("the broker closed the connection")

    def authenticate(self, options: Mapping[str, Any]) -> None:
        """Go through SASL if it is asked for.

        Without it, ask for the API versions: in TLS 1.3, a broker that refuses this client's certificate says
        so only after the client's side of the handshake is complete. Then ask for metadata: where a listener
        asks for a login, it answers the first and hangs up on the second.
        """
        name = options.get("sasl_mechanism")
        if name is None:
            self.ask(ApiVersionsRequest(version=0))
            self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False, version=4))
            return
        code = self.ask(SaslHandshakeRequest(mechanism=name, version=1)).error_code
        if for_code(code) is IllegalSaslStateError:
            raise WrongProtocolError("the broker asks for no SASL login there: correct security_protocol")
        if code:
            raise SaslAuthenticationFailedError(f"the broker does not offer the sasl_mechanism {name}")
        mechanism = get_sasl_mechanism(name)(**options)
        while not mechanism.is_done():
            answer = self.ask(SaslAuthenticateRequest(mechanism.auth_bytes(), version=0))
            if answer.error_code:
                said = answer.error_message or f"error code {answer.error_code}"
                raise SaslAuthenticationFailedError(said)
            try:
                mechanism.receive(answer.auth_bytes)
            except ValueError as error:
                said = f"the broker's answer does not prove who it is: {error}"
                raise SaslAuthenticationFailedError(said) from None

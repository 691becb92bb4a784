"""Tokens of OAUTHBEARER for kafka-python, which brings no way to get them; librdkafka has its own."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import msgspec
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider

TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  # no secret
"""Option of librdkafka that names the server of tokens."""

_MOST_BYTES: Final = 1 << 20
_FRESH: Final = 0.8  # of its life, a token is used


class _Answer(msgspec.Struct):
    access_token: str
    expires_in: float = 300.0


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Tokens by client credentials (RFC 6749, section 4.4), fetched anew when they grow old.

    Parameters
    ----------
    options
        librdkafka's, with the secret: ``sasl.oauthbearer.token.endpoint.url``, ``.client.id``,
        ``.client.secret``, ``.scope``; ``https.ca.location``.
    seconds
        Time limit of a request.
    """

    def __init__(self, options: Mapping[str, Any], seconds: float) -> None:
        super().__init__()
        self._options, self._seconds = options, seconds
        self._token, self._until = "", float("-inf")

    def token(self) -> str:
        """Return a token that is valid.

        Raises
        ------
        KafkaError
            If the server refuses, or does not answer in time. It shows no secret.
        """
        if time.monotonic() < self._until:
            return self._token
        options = self._options
        url, scope = str(options[TOKEN_URL]), options.get("sasl.oauthbearer.scope")
        user, secret = (options.get(f"sasl.oauthbearer.client.{name}", "") for name in ("id", "secret"))
        login = base64.b64encode(f"{user}:{secret}".encode()).decode()
        body = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
        # The scheme is checked with the other options.
        request = Request(url, urlencode(body).encode(), {"Authorization": f"Basic {login}"})  # noqa: S310
        trusted = ssl.create_default_context(cafile=options.get("https.ca.location"))
        try:
            with urlopen(request, timeout=self._seconds, context=trusted) as answer:  # noqa: S310
                found = msgspec.json.decode(answer.read(_MOST_BYTES), type=_Answer)
        except (OSError, ValueError) as error:
            refused = isinstance(error, HTTPError) and error.code < 500
            kind = SaslAuthenticationFailedError if refused else KafkaConnectionError
            raise kind(f"no token from {url}: {error}") from None
        self._token, self._until = found.access_token, time.monotonic() + _FRESH * found.expires_in
        return self._token

"""Schemas of values by their ids: from a schema registry, or a folder of files.

A registry is asked for each id once, with the two requests that Confluent's, Apicurio's and Karapace share:
``GET /schemas/ids/{id}`` and, for what a schema refers to, ``GET /subjects/{subject}/versions/{version}``. In
a folder, the id is the name of the file: ``17.avsc``, ``17.json``, or ``17.desc``, what ``protoc
--include_imports --descriptor_set_out`` writes.
"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.parse import quote

import msgspec

from streamcal_connectors.kafka.config import KafkaConfig
from streamcal_connectors.kafka.errors import brief, is_permanent

__all__ = ["AwayError", "FolderRegistry", "Kind", "Registry", "RemoteRegistry", "Schema", "open_registry"]

Kind: TypeAlias = Literal["AVRO", "DESCRIPTORS", "JSON", "PROTOBUF"]
"""DESCRIPTORS: a FileDescriptorSet of Protobuf."""

_ENDINGS: Final[dict[str, Kind]] = {".avsc": "AVRO", ".desc": "DESCRIPTORS", ".json": "JSON"}
_PASSING: Final = frozenset({408, 429})  # of the answers that are not the server's own failure (5xx)
_REFUSED: Final = frozenset({401, 403})
_DEEPEST: Final = 32  # references of references
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


_MOST_BYTES: Final = 4 << 20
"""Bytes of a schema, with all that it refers to: a registry's own topic holds 1 MiB of each by default."""


class AwayError(OSError):
    """The registry cannot be reached, or fails; that may pass."""


class Schema(NamedTuple):
    """A schema, and those that it refers to."""

    kind: Kind
    parts: dict[str, bytes]
    """Texts by name: first those that others refer to, at last the schema itself."""


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct):
    schema: str
    kind: Literal["AVRO", "JSON", "PROTOBUF"] | None = msgspec.field(default=None, name="schemaType")
    references: list[_Reference] | None = None


class FolderRegistry:
    """A folder of schemas, each in a file that is named by its id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return f"the folder {self._folder}"

    def schema(self, number: int) -> Schema:
        """Return a schema; LookupError if there is none of this id."""
        for ending, kind in _ENDINGS.items():
            path = self._folder / f"{number}{ending}"
            if path.is_file():
                return Schema(kind, {"": path.read_bytes()})
        raise LookupError(f"{self} has no file {number}.avsc, {number}.desc or {number}.json")


class RemoteRegistry:
    """A schema registry.

    Parameters
    ----------
    url
        its address, without user and password.
    config
        user, password, the authorities to trust, and how long a request may take.

    Raises
    ------
    ValueError
        if the password or the authorities cannot be read.
    """

    def __init__(self, url: str, config: KafkaConfig) -> None:
        self._url = url.rstrip("/")
        self._seconds = config.request_seconds
        self._login: str | None = None
        if (password := config.registry_password()) is not None:
            pair = f"{config.schema_registry_username}:{password}"
            self._login = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._tls: ssl.SSLContext | None = None
        if self._url.startswith("https:"):
            self._tls = ssl.create_default_context()
            if (authorities := config.client.get("ssl_cafile")) is not None:
                try:
                    self._tls.load_verify_locations(str(authorities))
                except OSError as error:
                    raise ValueError(f"ssl_cafile: {authorities}: {error}") from None

    def __str__(self) -> str:
        return f"the schema registry at {self._url}"

    def schema(self, number: int) -> Schema:
        """Return a schema.

        Raises
        ------
        AwayError
            if that cannot be told now.
        LookupError
            if there is none of this id.
        OSError, ValueError
            if the registry refuses, or is none.
        """
        path = f"/schemas/ids/{number}"
        parts: dict[str, bytes] = {}
        with _Limits(self._seconds) as limits:
            found = self._ask(path, f"schema {number}", limits)
            kind = found.kind or "AVRO"
            self._collect(found, path, "", kind, parts, 0, limits)
        return Schema(kind, parts)

    def _collect(
        self,
        found: _Answer,
        path: str,
        name: str,
        kind: Kind,
        parts: dict[str, bytes],
        depth: int,
        limits: _Limits,
    ) -> None:
        """Add a schema behind those that it refers to."""
        if depth > _DEEPEST:
            raise ValueError(f"{self}: {path} refers to schemas that refer to others, without end")
        for each in found.references or ():
            if each.name not in parts:
                there = f"/subjects/{quote(each.subject, safe='')}/versions/{each.version}"
                referred = self._ask(there, f"{each.name!r}, which {path} refers to", limits)
                self._collect(referred, there, each.name, kind, parts, depth + 1, limits)
        if kind != "PROTOBUF":
            parts[name] = found.schema.encode()
            return
        text = self._ask(f"{path}?format=serialized", path, limits).schema
        try:
            parts[name] = base64.b64decode(text, validate=True)
        except ValueError:
            raise ValueError(
                f"{self} does not give {path} in the form 'serialized': put what protoc makes of it into a"
                " folder, and let schema_registry be that (docs/kafka.md)"
            ) from None

    def _ask(self, path: str, what: str, limits: _Limits) -> _Answer:
        """Return the answer to a request."""
        request = urllib.request.Request(self._url + path, headers={"Accept": _ACCEPT})  # noqa: S310  # http(s)
        if self._login is not None:
            request.add_unredirected_header("Authorization", self._login)  # for this host alone
        try:
            with limits.opener(self._tls).open(request, timeout=self._seconds) as answer:
                data = limits.taken(answer.read(limits.bytes_left + 1))
        except HTTPError as error:
            error.close()
            said = f"{error.code} {error.reason}"
            if error.code == 404:
                raise LookupError(f"{self} has no {what}") from None
            if error.code in _REFUSED:
                raise OSError(f"{self} refuses: {said}; see schema_registry_username") from None
            if error.code >= 500 or error.code in _PASSING:
                raise AwayError(said) from None
            raise ValueError(f"{self} is none: {said} to {path}") from None
        except URLError as error:
            if isinstance(error.reason, Exception) and is_permanent(error.reason):
                raise OSError(f"{self} refuses: {brief(error.reason)}") from None
            raise AwayError(str(error.reason)) from None
        except (OSError, HTTPException) as error:
            raise AwayError(brief(error)) from None
        if len(data) > limits.bytes_left:
            raise ValueError(f"{self} is none: its answer to {path} has more than {_MOST_BYTES >> 20} MiB")
        limits.bytes_left -= len(data)
        try:
            return msgspec.json.decode(data, type=_Answer)
        except msgspec.DecodeError as error:
            raise ValueError(f"{self} is none: its answer to {path} is no schema ({error})") from None


class _Limits:
    """Limits of the bytes and of the whole time of some requests, however slowly the answers come.

    A time-out of a socket is that of one read: a byte now and then would keep a request open for ever.
    """

    def __init__(self, seconds: float) -> None:
        self.bytes_left = _MOST_BYTES
        self._seconds = seconds
        self._over = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for each in self._sockets:
            each.close()

    def opener(self, tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
        """Return what opens connections that are cut when the time is over."""
        return urllib.request.build_opener(_Http(self._watch), _Https(self._watch, tls))

    def taken(self, data: bytes) -> bytes:
        """Return what was read, if that was in time: what was cut may look like an end."""
        if self._over:
            raise TimeoutError(f"no whole answer within {self._seconds:g} s")
        return data

    def _watch(self, connected: socket.socket) -> None:
        self._sockets.append(connected.dup())  # TLS takes the socket itself away
        if self._over:
            self._end()

    def _end(self) -> None:
        self._over = True
        for each in self._sockets:
            with suppress(OSError):  # it has ended already
                each.shutdown(socket.SHUT_RDWR)


class _Connection(HTTPConnection):
    """A connection that hands its socket over before anything is read, a TLS handshake included."""

    watch: Callable[[socket.socket], None]

    def connect(self) -> None:
        """Connect."""
        super().connect()
        self.watch(self.sock)


class _TlsConnection(HTTPSConnection, _Connection):
    """The same, with TLS."""


def _connection(
    kind: type[_Connection], watch: Callable[[socket.socket], None], host: str, **options: Any
) -> _Connection:
    made = kind(host, **options)
    made.watch = watch
    return made


class _Http(urllib.request.HTTPHandler):
    def __init__(self, watch: Callable[[socket.socket], None]) -> None:
        super().__init__()
        self._made = partial(_connection, _Connection, watch)

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        """Open a URL."""
        return self.do_open(self._made, request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, watch: Callable[[socket.socket], None], tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._made = partial(_connection, _TlsConnection, watch, context=tls)

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        """Open a URL."""
        return self.do_open(self._made, request)


Registry: TypeAlias = FolderRegistry | RemoteRegistry
"""A source of schemas by their ids; as a text, its name in messages."""


def open_registry(config: KafkaConfig) -> Registry | None:
    """Return the registry that the options name; None if they name none.

    Raises
    ------
    ValueError
        as `RemoteRegistry`.
    """
    place = config.schema_registry
    if place is None:
        return None
    if place.startswith(("http://", "https://")):
        return RemoteRegistry(place, config)
    return FolderRegistry(Path(place))

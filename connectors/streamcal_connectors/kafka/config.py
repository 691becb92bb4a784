"""Options to reach a Kafka cluster: URLs, and the table ``[kafka]``. Secrets are never printed.

A URL is ``kafka://host:9092[,host2:9092]/topic?option=value``. The options of the connection (TLS, SASL, time
limits) come from the table ``[kafka]`` of the run's ``--config``, or of another TOML file that the URL's
option ``config`` or the variable ``STREAMCAL_KAFKA_CONFIG`` names. A variable ``STREAMCAL_KAFKA_<OPTION>``
overrides the table. None of them holds a secret: an option names the variable or the file that does.
"""

from __future__ import annotations

import os
import re
import ssl
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from streamcal.run.connectors import public_url

__all__ = ["KafkaConfig", "KafkaUrl", "read_kafka_config"]

_PREFIX: Final = "STREAMCAL_KAFKA_"
_SCHEME: Final = "kafka:"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@\[\]]+)(:[0-9]{1,5})?")

_Seconds = Annotated[float, Field(gt=0.0, le=86_400.0, allow_inf_nan=False)]


class _Options(BaseModel):
    # The value of a rejected option may be a misplaced secret.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class KafkaConfig(_Options):
    """Options of the connections to a cluster: the table ``[kafka]``.

    Raises
    ------
    pydantic.ValidationError
        on an unknown option, a value out of range, or options that exclude each other. It shows no value.
    """

    client: Literal["kafka-python", "confluent"] = "kafka-python"
    """The library that reads and writes records; confluent needs confluent-kafka."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    ssl_cafile: Path | None = None
    """PEM file of the authorities to trust; default: those of the system."""
    ssl_certfile: Path | None = None
    """PEM file of this client's certificate, if the brokers ask for one."""
    ssl_keyfile: Path | None = None
    """PEM file of the certificate's key."""
    ssl_key_password_env: str | None = None
    """Name of the variable that holds the key's password."""
    ssl_key_password_file: Path | None = None
    """Path of the file that holds the key's password."""
    ssl_check_hostname: bool = True
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: str | None = None
    sasl_password_env: str | None = None
    """Name of the variable that holds the password."""
    sasl_password_file: Path | None = None
    """Path of the file that holds the password."""

    connect_seconds: _Seconds = 300.0
    """Longest wait for the cluster when a run starts; later it waits without limit."""
    request_seconds: _Seconds = 15.0
    """Time limit of a request."""
    stall_seconds: _Seconds = 60.0
    """A partition with records to read but without progress is reported after this time."""
    refresh_seconds: _Seconds = 5.0
    """Time between two looks for new partitions."""
    compression: Literal["none", "gzip"] = "none"
    """Compression of the records that are written."""

    schema_registry: str | None = None
    """Place of the schemas of values: the URL of a schema registry, or a folder of files."""
    schema_registry_username: str | None = None
    schema_registry_password_env: str | None = None
    """Name of the variable that holds the password."""
    schema_registry_password_file: Path | None = None
    """Path of the file that holds the password."""

    @field_validator("schema_registry")
    @classmethod
    def _is_a_place(cls, place: str | None) -> str | None:
        if place is None:
            return None
        parts = urlsplit(place)
        if "@" in parts.netloc:
            raise ValueError(
                "a URL must not have a user or password: use schema_registry_username and"
                " schema_registry_password_env or schema_registry_password_file"
            )
        if not (parts.scheme in ("http", "https") and parts.hostname) and not Path(place).is_dir():
            raise ValueError("it must be an http:// or https:// URL, or a folder that is there")
        return place

    @model_validator(mode="after")
    def _together(self) -> Self:
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            path: Path | None = getattr(self, name)
            if path is not None and not path.is_file():
                raise ValueError(f"{name}: there is no file {path}")
        sasl = self.security_protocol.startswith("SASL")
        for name in ("sasl_password", "schema_registry_password", "ssl_key_password"):
            if getattr(self, f"{name}_env") is not None and getattr(self, f"{name}_file") is not None:
                raise ValueError(f"give either {name}_env or {name}_file")
        if sasl and (self.sasl_mechanism is None or self.sasl_username is None):
            raise ValueError(f"{self.security_protocol} needs sasl_mechanism and sasl_username")
        if sasl and self.sasl_password_env is None and self.sasl_password_file is None:
            raise ValueError(f"{self.security_protocol} needs sasl_password_env or sasl_password_file")
        if not sasl and self.sasl_mechanism is not None:
            raise ValueError("sasl_mechanism needs security_protocol SASL_SSL or SASL_PLAINTEXT")
        secret = self.schema_registry_password_env or self.schema_registry_password_file
        if (self.schema_registry_username is None) != (secret is None):
            raise ValueError(
                "give schema_registry_username together with schema_registry_password_env or"
                " schema_registry_password_file"
            )
        return self

    def secret(
        self, name: Literal["sasl_password", "schema_registry_password", "ssl_key_password"]
    ) -> str | None:
        """Read a secret from the variable or the file that its options name; None if they name neither.

        Raises
        ------
        ValueError
            if the variable is unset, or the file cannot be read or is empty.
        """
        variable: str | None = getattr(self, f"{name}_env")
        path: Path | None = getattr(self, f"{name}_file")
        if variable is not None:
            if value := os.environ.get(variable):
                return value
            raise ValueError(f"{name}_env: the environment has no variable {variable}")
        if path is None:
            return None
        try:
            value = path.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{name}_file: cannot read {path}: {type(error).__name__}") from None
        if not value:
            raise ValueError(f"{name}_file: {path} is empty")
        return value

    def ssl_context(self) -> ssl.SSLContext:
        """Make the TLS side of a connection.

        Raises
        ------
        ValueError
            if a file of certificates or the key's password cannot be read.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.ssl_check_hostname
        try:
            if self.ssl_cafile is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(self.ssl_cafile)
        except OSError as error:
            raise ValueError(
                f"ssl_cafile: {self.ssl_cafile} is not a PEM file of certificates: {error}"
            ) from None
        if self.ssl_certfile is not None:
            password = self.secret("ssl_key_password")
            try:
                # Without a password, an empty one: OpenSSL would ask for it on the terminal.
                context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, password or "")
            except OSError as error:
                raise ValueError(
                    f"ssl_certfile, ssl_keyfile: cannot use {self.ssl_certfile} with the key in"
                    f" {self.ssl_keyfile or self.ssl_certfile}: {error}"
                ) from None
        return context


class UrlOptions(_Options):
    """The options after the ``?`` of a URL."""

    start: Literal["earliest", "latest"] = Field("earliest", alias="from")
    until: Literal["end"] | None = None
    transactional_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    cluster: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] | None = None
    config: Path | None = None


class KafkaUrl:
    """A topic of a cluster.

    Parameters
    ----------
    url
        ``kafka://host:9092[,host2:9092]/topic?option=value``.

    Raises
    ------
    ValueError
        if the URL has another form; the message repeats it without user, password and options.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        shown = public_url(url)
        if "@" in parts.netloc:
            raise ValueError(
                f"{shown!r}: a URL must not have a user or password: use sasl_username and sasl_password_env"
                " or sasl_password_file of the [kafka] options (docs/kafka.md)"
            )
        hosts = [_HOST.fullmatch(host) for host in parts.netloc.split(",")]
        self.topic = unquote(parts.path.removeprefix("/"))
        if not url.startswith(_SCHEME) or not all(hosts):
            raise ValueError(f"a Kafka URL is kafka://host:9092[,host2:9092]/topic, got {shown!r}")
        if not _TOPIC.fullmatch(self.topic) or self.topic in (".", ".."):
            raise ValueError(
                f"a topic name has 1 to 249 letters, digits, '.', '_' or '-', got {self.topic!r} in {shown!r}"
            )
        self.hosts = tuple(f"{host[1]}{host[2] or ':9092'}" for host in hosts if host)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        try:
            self.options = options = UrlOptions.model_validate(dict(pairs))
        except ValidationError as error:
            known = sorted(field.alias or name for name, field in UrlOptions.model_fields.items())
            raise ValueError(f"{shown!r}: {_brief(error)}; options: {', '.join(known)}") from None
        self.name = f"kafka:{options.cluster}/{self.topic}" if options.cluster else f"kafka:{self.topic}"
        """Name in positions. It has no hosts: their list may change while the topic stays the same."""


def read_kafka_config(
    path: Path | None,
    environment: Mapping[str, str] = os.environ,
    table: Mapping[str, object] | None = None,
) -> KafkaConfig:
    """Read the options of connections from a table ``[kafka]`` and from the environment, which overrides it.

    Parameters
    ----------
    path
        a TOML file with the table; None: the file that the environment names, if any.
    environment
        variables by name.
    table
        the table in the run's own configuration, which is used if no other file is named.

    Raises
    ------
    ValueError
        if the file cannot be read, or an option is rejected. The message shows no value: it may be a secret.
    """
    if path is None and (named := environment.get(f"{_PREFIX}CONFIG")):
        path = Path(named)
    found = dict(table or {})
    if path is not None:
        try:
            found = tomllib.loads(path.read_text("utf-8")).get("kafka", {})
        except OSError as error:
            raise ValueError(f"cannot read the Kafka options: {error}") from None
        except ValueError:  # of TOML or UTF-8; its text may show the line
            raise ValueError(f"{path} is not a TOML file") from None
        if not isinstance(found, dict):
            raise ValueError(f"{path}: [kafka] must be a table")
    for name in KafkaConfig.model_fields:
        if (value := environment.get(_PREFIX + name.upper())) is not None:
            found[name] = value
    try:
        return KafkaConfig.model_validate(found)
    except ValidationError as error:
        where = path or ("--config" if table else "environment")
        raise ValueError(f"{where}, Kafka options: {_brief(error)}") from None


def _brief(error: ValidationError) -> str:
    """Return what is wrong, without the values."""
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'options'}: {each['msg']}"
        for each in error.errors(include_input=False, include_url=False)
    )

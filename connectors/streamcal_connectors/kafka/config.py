"""Options to reach a Kafka cluster: URLs, and the table ``[kafka]``. Secrets are never printed.

A URL is ``kafka://host:9092[,host2:9092]/topic?option=value``. The options of the connection (TLS, SASL, time
limits) come from the table ``[kafka]`` of the run's ``--config``, or of another TOML file that the URL's
option ``config`` or the variable ``STREAMCAL_KAFKA_CONFIG`` names. A variable ``STREAMCAL_KAFKA_<OPTION>``
overrides the table. The table ``[kafka.client]`` in it goes to the client library. None of them holds a
secret: an option names the variable or the file that does.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from streamcal.run.connectors import public_url
from streamcal_connectors.kafka.tokens import TOKEN_URL, Tokens

_PREFIX: Final = "STREAMCAL_KAFKA_"
_SCHEME: Final = "kafka:"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@\[\]]+)(:[0-9]{1,5})?")

_SECRET: Final = re.compile(r"password|secret|key\.pem|user\.info|\.token$")
_ELSEWHERE: Final = ("_env", "_file")  # ends of the names of options that say where a secret is
_OURS: Final = frozenset(
    {
        *("acks", "auto_offset_reset", "bootstrap_servers", "enable_auto_commit", "enable_auto_offset_store"),
        *("enable_idempotence", "enable_partition_eof", "group_id", "isolation_level", "transactional_id"),
    }
)  # on which exactly-once rests, with _ for any dot

_LIBRDKAFKA: Final = {
    "client_id": "client.id",
    "client_rack": "client.rack",
    "compression_type": "compression.type",
    "security_protocol": "security.protocol",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_password": "sasl.password",
    "sasl_plain_username": "sasl.username",
}  # kafka-python's names of what librdkafka takes, too

_Seconds = Annotated[float, Field(gt=0.0, le=86_400.0, allow_inf_nan=False)]


_Table: TypeAlias = dict[str, str | bool | int | float]


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

    library: Literal["kafka-python", "confluent"] = "kafka-python"
    """The library that reads and writes records; confluent needs confluent-kafka."""
    client: _Table = Field({}, repr=False)
    """Options of its client, by kafka-python's names or librdkafka's; as a text, a JSON object."""
    schema_registry: _Table = Field({}, repr=False)
    """Options of confluent-kafka's client of a schema registry; as a text, a JSON object or the URL."""

    time: Literal["value", "record"] = "value"
    """Whether an event whose value has no time takes the timestamp of its record."""
    connect_seconds: _Seconds = 300.0
    """Longest wait for the cluster when a run starts; later it waits without limit."""
    request_seconds: _Seconds = 15.0
    """Time limit of a request."""
    stall_seconds: _Seconds = 60.0
    """A partition with records to read but without progress is reported after this time."""
    refresh_seconds: _Seconds = 5.0
    """Time between two looks for new partitions."""

    @field_validator("client", "schema_registry", mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if not value.startswith("{"):
            return {"url": value}
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            raise ValueError("it is no JSON object") from None

    @field_validator("client", "schema_registry")
    @classmethod
    def _without_secrets(cls, table: dict[str, Any]) -> dict[str, Any]:
        for name, value in table.items():
            if _SECRET.search(name) and not name.endswith(_ELSEWHERE):
                raise ValueError(f"{name} is a secret: give {name}_file or {name}_env, which say where it is")
            if name == TOKEN_URL and not str(value).startswith(("http://", "https://")):
                raise ValueError(f"{name} must be an http:// or https:// URL")
            if name.startswith("ssl") and name.endswith(("file", ".location")) and not Path(value).exists():
                raise ValueError(f"{name}: there is no file {value}")
        return table

    @field_validator("client")
    @classmethod
    def _not_ours(cls, table: dict[str, Any]) -> dict[str, Any]:
        for name in table:
            if name.replace(".", "_") in _OURS:
                raise ValueError(f"streamcal sets {name} itself")
        return table

    @field_validator("schema_registry")
    @classmethod
    def _has_a_url(cls, table: dict[str, Any]) -> dict[str, Any]:
        parts = urlsplit(str(table.get("url", "")))
        if "@" in parts.netloc:
            raise ValueError("a URL must not have a user or password: give basic.auth.user.info_file")
        if table and not (parts.scheme in ("http", "https") and parts.hostname):
            raise ValueError("its url must be an http:// or https:// URL")
        return table

    def client_options(self) -> dict[str, Any]:
        """Return the options of kafka-python's clients, with the secrets; see `_secret`."""
        options = _with_secrets(self.client)
        found = {name: value for name, value in options.items() if "." not in name}
        if TOKEN_URL in options:
            found["sasl_oauth_token_provider"] = Tokens(options, self.request_seconds)
        return found

    def librdkafka_options(self) -> dict[str, Any]:
        """Return librdkafka's options, with the secrets; see `_secret`."""
        options = _with_secrets(self.client)
        found = {_LIBRDKAFKA[name]: value for name, value in options.items() if name in _LIBRDKAFKA}
        if TOKEN_URL in options:
            found["sasl.oauthbearer.method"] = "oidc"
        if options.get("ssl_check_hostname") is False:
            found["ssl.endpoint.identification.algorithm"] = "none"
        return found | {name: value for name, value in options.items() if "." in name}

    def registry_options(self) -> dict[str, Any]:
        """Return the options of the client of the registry, with the secrets; empty if there is none."""
        limits = {"timeout": self.request_seconds, "max.retries": 0}
        return limits | _with_secrets(self.schema_registry) if self.schema_registry else {}


def _with_secrets(table: _Table) -> dict[str, Any]:
    return {
        name.rpartition("_")[0] if name.endswith(_ELSEWHERE) else name: _secret(name, str(value))
        if name.endswith(_ELSEWHERE)
        else value
        for name, value in table.items()
    }


def _secret(option: str, place: str) -> str:
    """Read a secret from the variable or the file that an option names.

    Raises
    ------
    ValueError
        if the variable is unset, or the file cannot be read or is empty.
    """
    if option.endswith("_env"):
        if value := os.environ.get(place):
            return value
        raise ValueError(f"{option}: the environment has no variable {place}")
    try:
        value = Path(place).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{option}: cannot read {place}: {type(error).__name__}") from None
    if not value:
        raise ValueError(f"{option}: {place} is empty")
    return value


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
                f"{shown!r}: a URL must not have a user or password: use sasl_plain_username and"
                " sasl_plain_password_file of [kafka.client] (docs/kafka.md)"
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

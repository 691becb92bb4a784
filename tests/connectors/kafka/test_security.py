"""TLS, SASL and ACLs against a real broker: what is refused, and what is only away."""

from __future__ import annotations

import ssl
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka.admin import (  # type: ignore[import-untyped]
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
)

from tests.connectors.kafka.broker import SERVER_PROPERTIES, Broker, free_ports
from tests.connectors.kafka.topics import BOTH, SECRET, Kafka, prediction, streamcal

pytestmark = pytest.mark.usefixtures("quick_cluster")


class Secured(NamedTuple):
    """A broker, the port of its listener with TLS and SASL, and the certificate to trust."""

    kafka: Kafka
    port: int
    certificate: Path


@pytest.fixture(scope="module")
def secure(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Return a broker that also listens with TLS and SASL, and makes topics that are asked for."""
    folder = tmp_path_factory.mktemp("tls")
    keys, certificate = folder / "keys.p12", folder / "ca.pem"
    store = ["-keystore", str(keys), "-storetype", "PKCS12", "-storepass", "changeit", "-alias", "broker"]
    name = ["-keyalg", "RSA", "-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1,dns:localhost"]
    subprocess.run(["keytool", "-genkeypair", *store, *name], check=True, capture_output=True)
    (port,) = free_ports(1)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = (
        SERVER_PROPERTIES.replace(
            "PLAINTEXT://127.0.0.1:{port}", f"PLAINTEXT://127.0.0.1:{{port}},SECURE://127.0.0.1:{port}"
        )
        .replace("protocol.map=", "protocol.map=SECURE:SASL_SSL,")
        .replace("auto.create.topics.enable=false", "auto.create.topics.enable=true")
        + f"ssl.keystore.location={keys}\nssl.keystore.type=PKCS12\nssl.keystore.password=changeit\n"
        + "listener.name.secure.sasl.enabled.mechanisms=PLAIN\n"
        # The broker closes at once behind its refusal: a client on a busy machine meets both together.
        + "connection.failed.authentication.delay.ms=0\n"
        + f"listener.name.secure.plain.sasl.jaas.config={module} required"
        + f' username="admin" password="x" user_streamcal="{SECRET}" user_stranger="{SECRET}";\n'
        + "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        + "super.users=User:ANONYMOUS;User:streamcal\n"
    )
    with Broker(properties) as started:
        certificate.write_text(ssl.get_server_certificate(("127.0.0.1", port)))
        yield Secured(Kafka(started), port, certificate)


def login(secure: Secured, folder: Path, user: str = "streamcal") -> Path:
    """Write the options of a user; its password is in the file ``password`` beside them."""
    (folder / "password").write_text(SECRET)
    path = folder / f"{user}.toml"
    path.write_text(
        '[kafka.client]\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\n'
        f'sasl_plain_username = "{user}"\nssl_cafile = "{secure.certificate}"\n'
        f'sasl_plain_password_file = "{folder / "password"}"\n'
    )
    return path


@BOTH
def test_tls_and_sasl(secure: Secured, tmp_path: Path, client: str) -> None:
    """Through the command line; the secret is in no output, not even when it is refused."""
    kafka, port, _ = secure
    options, store = login(secure, tmp_path), tmp_path / "s.db"
    events, answers = kafka.topic("events"), kafka.topic("answers")
    kafka.put(events, [prediction(i) for i in range(10)])
    untrusted, password = tmp_path / "untrusted.toml", tmp_path / "password"
    untrusted.write_text(options.read_text().replace("ssl_cafile", "# "))
    command = ["run", "--log-json", "--events", f"kafka://127.0.0.1:{port}/{events}?until=end"]
    command += ["--output", f"kafka://127.0.0.1:{port}/{answers}", "--store", store, "--config"]
    said = ""
    refusals = [
        (options, SECRET + "wrong", 1, "SaslAuthenticationFailedError"),
        (untrusted, SECRET, 1, "CERTIFICATE_VERIFY_FAILED"),
    ]  # which kafka-python meets, whichever client reads
    for config, text, status, message in (
        *(refusals if client == "kafka-python" else ()),
        (options, SECRET, 0, ""),
    ):
        password.write_text(text)
        done = streamcal(*command, config, STREAMCAL_KAFKA_CONNECT_SECONDS="30")
        assert bool(done.returncode) == bool(status), done.stderr
        assert message in done.stderr
        assert not status or "refuses: " in done.stderr
        said += done.stdout + done.stderr
    assert kafka.answered(answers) == list(range(10))
    assert SECRET not in said + streamcal("show", "--json", store).stdout
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("s.db*"))


def test_a_user_without_rights(secure: Secured, tmp_path: Path) -> None:
    """And though the broker makes topics that are asked for, no topic of a wrong name is made."""
    (kafka, port, _), out = secure, tmp_path / "out.jsonl"
    events, answers, wrong = kafka.topic("events"), kafka.topic("answers"), f"wrong-{uuid.uuid4().hex}"
    kafka.put(events, [prediction(0)])
    describe, may_read = ACLOperation.DESCRIBE, ACLOperation.READ
    unseen = f"there is no topic {wrong!r}"
    with kafka.admin() as admin:
        for user, granted, source, output, status, messages in (
            ("stranger", None, events, out, 1, [f"no topic {events!r}", "grant Describe"]),
            ("stranger", (events, describe), events, out, 1, ["TopicAuthorizationFailedError", events]),
            ("stranger", (events, may_read), events, out, 0, []),
            ("stranger", (answers, describe), events, answers, 3, ["AuthorizationFailedError"]),
            ("streamcal", None, wrong, answers, 1, [unseen]),
            ("streamcal", None, events, wrong, 3, [unseen]),
        ):
            if granted is not None:
                pattern = ResourcePattern(ResourceType.TOPIC, granted[0])
                admin.create_acls([ACL("User:stranger", "*", granted[1], ACLPermissionType.ALLOW, pattern)])
            place = f"kafka://127.0.0.1:{port}"
            command = ["run", "--config", login(secure, tmp_path, user)]
            command += ["--events", f"{place}/{source}?until=end"]
            done = streamcal(*command, "--output", output if output is out else f"{place}/{output}")
            assert done.returncode == status, done.stderr
            assert all(message in done.stderr for message in messages), done.stderr
        assert wrong not in admin.list_topics()

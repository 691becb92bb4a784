"""TLS and SASL against a real broker: what is refused, and what is only away."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaAdminClient  # type: ignore[import-untyped]
from kafka.admin import (  # type: ignore[import-untyped]
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
)

from tests.connectors.kafka import broker as broker_module
from tests.connectors.kafka.broker import Broker, free_ports
from tests.connectors.kafka.clients import unique
from tests.connectors.kafka.fixtures import BOTH, AnyBroker, Topics
from tests.connectors.kafka.topics import SECRET, answered, prediction, put, streamcal

pytestmark = pytest.mark.usefixtures("quick_cluster")


class Secured(NamedTuple):
    """A broker, the ports of its two listeners with TLS, and the certificate to trust."""

    broker: Broker
    sasl_port: int
    mutual_port: int
    certificate: Path


@pytest.fixture(scope="module")
def secure(kafka_broker: AnyBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Return a broker that also listens with TLS and SASL, and with TLS and certificates of clients."""
    if not isinstance(kafka_broker, Broker):
        pytest.skip("the broker is not ours to configure")
    folder = tmp_path_factory.mktemp("tls")
    keys, certificate = folder / "keys.p12", folder / "ca.pem"
    store = ["-keystore", str(keys), "-storetype", "PKCS12", "-storepass", "changeit", "-alias", "broker"]
    made = ["-keyalg", "RSA", "-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1,dns:localhost"]
    subprocess.run(["keytool", "-genkeypair", *store, *made], check=True, capture_output=True)
    subprocess.run(
        ["keytool", "-exportcert", "-rfc", *store, "-file", str(certificate)], check=True, capture_output=True
    )
    trusted = ["-keystore", str(folder / "trust.p12"), "-storetype", "PKCS12", "-storepass", "changeit"]
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", *trusted, "-alias", "ca", "-file", str(certificate)],
        check=True,
        capture_output=True,
    )
    port, mutual = free_ports(2)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    text = (
        broker_module.SERVER_PROPERTIES.replace(
            "PLAINTEXT://127.0.0.1:{port}",
            f"PLAINTEXT://127.0.0.1:{{port}},SECURE://127.0.0.1:{port},MUTUAL://127.0.0.1:{mutual}",
        )
        .replace("protocol.map=", "protocol.map=SECURE:SASL_SSL,MUTUAL:SSL,")
        .replace("auto.create.topics.enable=false", "auto.create.topics.enable=true")
        + f"ssl.keystore.location={keys}\nssl.keystore.type=PKCS12\nssl.keystore.password=changeit\n"
        + f"ssl.truststore.location={folder / 'trust.p12'}\nssl.truststore.type=PKCS12\n"
        + "ssl.truststore.password=changeit\nlistener.name.mutual.ssl.client.auth=required\n"
        + "listener.name.secure.sasl.enabled.mechanisms=PLAIN\n"
        # The broker closes at once behind its refusal: a client on a busy machine meets both together.
        + "connection.failed.authentication.delay.ms=0\n"
        + f"listener.name.secure.plain.sasl.jaas.config={module} required"
        + f' username="admin" password="x" user_streamcal="{SECRET}" user_stranger="{SECRET}";\n'
        + "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        + "super.users=User:ANONYMOUS;User:streamcal;User:CN=localhost\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_module, "SERVER_PROPERTIES", text)
        with Broker() as started:
            yield Secured(started, port, mutual, certificate)


class TestSecurity:
    @BOTH
    def test_tls_and_sasl(self, secure: Secured, tmp_path: Path) -> None:
        """Through the command line; the secret is in no output, not even when it is refused."""
        broker, port, _, certificate = secure
        new = Topics(broker.bootstrap)
        events, answers = new("events"), new("answers")
        put(broker, events, [prediction(i) for i in range(10)])
        password = tmp_path / "password"
        options = tmp_path / "kafka.toml"
        options.write_text(
            '[kafka.client]\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\n'
            'sasl_plain_username = "streamcal"\n'
            f'ssl_cafile = "{certificate}"\nsasl_plain_password_file = "{password}"\n'
        )
        store = tmp_path / "s.db"
        command = [
            *("run", "--log-json", "--events", f"kafka://127.0.0.1:{port}/{events}?until=end"),
            *("--output", f"kafka://127.0.0.1:{port}/{answers}", "--store", store),
        ]
        environment = {"STREAMCAL_KAFKA_CONFIG": str(options), "STREAMCAL_KAFKA_CONNECT_SECONDS": "30"}
        password.write_text(SECRET + "wrong")
        refused = streamcal(*command, **environment)
        assert refused.returncode in (1, 3), refused.stderr
        assert "refuses: " in refused.stderr
        assert "SaslAuthenticationFailedError" in refused.stderr
        another = tmp_path / "another.toml"
        another.write_text(options.read_text().replace("ssl_cafile", "# "))
        untrusted = streamcal(*command, **environment | {"STREAMCAL_KAFKA_CONFIG": str(another)})
        assert "refuses: " in untrusted.stderr
        assert "CERTIFICATE_VERIFY_FAILED" in untrusted.stderr
        password.write_text(SECRET)
        del environment["STREAMCAL_KAFKA_CONFIG"]
        done = streamcal(*command, "--config", options, **environment)
        assert done.returncode == 0, done.stderr
        assert answered(broker, answers) == list(range(10))
        shown = streamcal("show", "--json", store)
        for text in (
            refused.stdout,
            refused.stderr,
            untrusted.stderr,
            done.stdout,
            done.stderr,
            shown.stdout,
        ):
            assert SECRET not in text
        assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("s.db*"))

    def test_a_user_without_rights(self, secure: Secured, tmp_path: Path) -> None:
        """And though the broker makes topics that are asked for, no topic of a wrong name is made."""
        broker, port, _, certificate = secure
        new = Topics(broker.bootstrap)
        events, answers = new("events"), new("answers")
        put(broker, events, [prediction(0)])
        options = {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(certificate),
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "stranger",
            "sasl_plain_password_env": "PASSWORD",
        }

        def run(topic: str, output: object) -> subprocess.CompletedProcess[str]:
            source = f"kafka://127.0.0.1:{port}/{topic}?until=end"
            command = ["run", "--events", source, "--output", output]
            return streamcal(*command, STREAMCAL_KAFKA_CLIENT=json.dumps(options), PASSWORD=SECRET)

        with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:

            def grant(topic: str, operation: ACLOperation) -> None:
                pattern = ResourcePattern(ResourceType.TOPIC, topic)
                admin.create_acls([ACL("User:stranger", "*", operation, ACLPermissionType.ALLOW, pattern)])

            done = run(events, tmp_path / "out.jsonl")
            assert done.returncode == 1
            assert f"no topic {events!r}" in done.stderr
            assert "grant Describe" in done.stderr
            grant(events, ACLOperation.DESCRIBE)
            done = run(events, tmp_path / "out.jsonl")
            assert done.returncode == 1, done.stderr
            assert "TopicAuthorizationFailedError" in done.stderr
            assert events in done.stderr
            grant(events, ACLOperation.READ)
            done = run(events, tmp_path / "out.jsonl")
            assert done.returncode == 0, done.stderr
            grant(answers, ACLOperation.DESCRIBE)
            done = run(events, f"kafka://127.0.0.1:{port}/{answers}")
            assert done.returncode == 3, done.stderr
            assert "AuthorizationFailedError" in done.stderr
            wrong = unique("wrong")
            options["sasl_plain_username"] = "streamcal"
            done = run(wrong, f"kafka://127.0.0.1:{port}/{answers}")
            assert done.returncode == 1
            assert f"there is no topic {wrong!r}" in done.stderr
            done = run(events, f"kafka://127.0.0.1:{port}/{wrong}")
            assert done.returncode == 3
            assert f"there is no topic {wrong!r}" in done.stderr
            assert wrong not in admin.list_topics()

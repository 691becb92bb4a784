"""TLS, SASL and ACLs against a real broker: what is refused, and what is only away."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.codec import has_zstd
from kafka.errors import SaslAuthenticationFailedError
from streamcal_connectors.kafka.tokens import TOKEN_URL, Tokens

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
    package = "org.apache.kafka.common.security"
    module = f"{package}.plain.PlainLoginModule"
    properties = (
        SERVER_PROPERTIES.replace(
            "PLAINTEXT://127.0.0.1:{port}", f"PLAINTEXT://127.0.0.1:{{port}},SECURE://127.0.0.1:{port}"
        )
        .replace("protocol.map=", "protocol.map=SECURE:SASL_SSL,")
        .replace("auto.create.topics.enable=false", "auto.create.topics.enable=true")
        + f"ssl.keystore.location={keys}\nssl.keystore.type=PKCS12\nssl.keystore.password=changeit\n"
        + "listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER\n"
        # Takes tokens without a signature.
        + f"listener.name.secure.oauthbearer.sasl.jaas.config={package}.oauthbearer.OAuthBearerLoginModule"
        + ' required unsecuredLoginStringClaim_sub="broker";\n'
        + f"listener.name.secure.scram-sha-512.sasl.jaas.config={package}.scram.ScramLoginModule required;\n"
        # The broker closes at once behind its refusal: a client on a busy machine meets both together.
        + "connection.failed.authentication.delay.ms=0\n"
        + f"listener.name.secure.plain.sasl.jaas.config={module} required"
        + f' username="admin" password="x" user_streamcal="{SECRET}" user_stranger="{SECRET}";\n'
        + "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        + "super.users=User:ANONYMOUS;User:streamcal\n"
    )
    with Broker(properties) as started:
        certificate.write_text(ssl.get_server_certificate(("127.0.0.1", port)))
        with Kafka(started).admin() as admin:
            made = UserScramCredentialUpsertion("streamcal", ScramMechanism.SCRAM_SHA_512, SECRET, 4096)
            admin.alter_user_scram_credentials([made])
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


class TokenServer(BaseHTTPRequestHandler):
    """Gives tokens without a signature to whoever knows the secret; counts them."""

    given = 0

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        assert parse_qs(asked) == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
        login = base64.b64encode(f"me:{SECRET}".encode()).decode()
        knows = self.headers["Authorization"] == f"Basic {login}"
        now = int(time.time())
        claims = {"sub": "streamcal", "iat": now, "exp": now + 600}
        parts = ({"alg": "none"}, claims)
        token = ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts
        )
        self.send_response(200 if knows else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(
            json.dumps({"access_token": f"{token}.", "expires_in": 600} if knows else {}).encode()
        )
        type(self).given += knows

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def command_lines() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return "\n".join(found)


@pytest.mark.parametrize(
    ("client", "mechanism"),
    [
        ("confluent", "SCRAM-SHA-512"),
        ("kafka-python", "OAUTHBEARER"),
        pytest.param("kafka-python", "SCRAM-SHA-512", marks=pytest.mark.nightly),
        pytest.param("confluent", "OAUTHBEARER", marks=pytest.mark.nightly),
    ],
    indirect=["client"],
)
def test_a_secret_stays_where_it_is(secure: Secured, tmp_path: Path, client: str, mechanism: str) -> None:
    """It is in no command line, log or store; answers are compressed by zstd, where the client can."""
    kafka, port, certificate = secure
    (tmp_path / "password").write_text(SECRET)
    events, answers = kafka.topic("events"), kafka.topic("answers")
    kafka.put(events, [prediction(i) for i in range(10)])
    with HTTPServer(("127.0.0.1", 0), TokenServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        login = [f'sasl_plain_username = "streamcal"\nsasl_plain_password_file = "{tmp_path / "password"}"']
        if mechanism == "OAUTHBEARER":
            oauth = '"sasl.oauthbearer.'
            login = [
                f'{oauth}token.endpoint.url" = "http://127.0.0.1:{server.server_port}/token"',
                f'{oauth}client.id" = "me"\n{oauth}scope" = "kafka"',
                f'{oauth}client.secret_file" = "{tmp_path / "password"}"',
            ]
            about = {TOKEN_URL: login[0].split('"')[3], "sasl.oauthbearer.scope": "kafka"}
            with pytest.raises(SaslAuthenticationFailedError, match="HTTP Error 401"):
                Tokens(about | {"sasl.oauthbearer.client.secret": "wrong"}, 5.0).token()
        lines = ['[kafka.client]\nsecurity_protocol = "SASL_SSL"', f'ssl_cafile = "{certificate}"', *login]
        lines += [f'sasl_mechanism = "{mechanism}"', 'client_id = "mine"', 'client_rack = "r1"']
        config, place = tmp_path / "kafka.toml", f"kafka://127.0.0.1:{port}"
        command = ["run", "--log-json", "--events", f"{place}/{events}?until=end", "--config", str(config)]
        command += ["--output", f"{place}/{answers}", "--store", str(tmp_path / "s.db")]
        config.write_text("\n".join([*lines, 'compression_type = "zstd"']))
        if client == "kafka-python" and not has_zstd():
            done = streamcal(*command, status=2)
            assert "streamcal-engine[kafka-confluent]" in done.stderr
            assert not (tmp_path / "s.db").exists()
            config.write_text("\n".join(lines))
        begun, said, seen = TokenServer.given, subprocess.PIPE, ""
        with subprocess.Popen([sys.executable, "-m", "streamcal", *command], stdout=said, stderr=said) as run:
            while run.poll() is None:
                seen += command_lines()
                time.sleep(0.05)
            out, err = run.communicate()
        server.shutdown()
    assert run.returncode == 0, err
    written = tmp_path / "written.jsonl"
    done = streamcal("run", "--events", kafka.url(answers, "?until=end"), "--output", written)
    assert written.read_bytes().count(b"\n") == 10, done.stderr
    assert (TokenServer.given > begun) == (mechanism == "OAUTHBEARER")
    assert str(config) in seen
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("s.db*"))
    assert SECRET not in seen + (out + err + kept).decode(errors="replace")
    if client == "confluent":
        log = next((kafka.broker.directory / "data").glob(f"{answers}-0/*.log")).read_bytes()
        assert b"\x28\xb5\x2f\xfd" in log  # what zstd begins with


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
            done = streamcal(
                *command, "--output", output if output is out else f"{place}/{output}", status=status
            )
            assert all(message in done.stderr for message in messages), done.stderr
        assert wrong not in admin.list_topics()

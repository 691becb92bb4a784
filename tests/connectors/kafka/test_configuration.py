"""URLs, the table `[kafka]`, and messages that keep secrets."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from streamcal_connectors.kafka import cluster as kafka_cluster
from streamcal_connectors.kafka.config import KafkaConfig, KafkaUrl, read_kafka_config
from streamcal_connectors.kafka.confluent import connection_options

from streamcal.run.connectors import Connectors
from tests.connectors.kafka.topics import SECRET, streamcal

pytestmark = pytest.mark.usefixtures("quick_cluster")


class TestConfiguration:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("kafka://h:1/", "a topic name has"),
            ("kafka:///topic", "a Kafka URL is"),
            ("kafka://h:1:2/topic", "a Kafka URL is"),
            ("kafka://h/a/b", "a topic name has"),
            (f"kafka://me:{SECRET}@h/topic", "a URL must not have a user"),
            ("kafka://h/t?frm=latest", "frm: Extra inputs.*options: cluster, config, from, trans"),
            ("kafka://h/t?from=now", "'earliest' or 'latest'"),
            (f"kafka://h/t?sasl_password={SECRET}", "sasl_password: Extra inputs"),
        ],
    )
    def test_a_url_that_is_none(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            KafkaUrl(text)
        assert SECRET not in str(caught.value)

    def test_a_client_that_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STREAMCAL_KAFKA_LIBRARY", "confluent")
        monkeypatch.delitem(sys.modules, "streamcal_connectors.kafka.confluent", raising=False)
        monkeypatch.setitem(sys.modules, "confluent_kafka", None)
        with pytest.raises(ValueError, match=re.escape('pip install "streamcal-engine[kafka-confluent]"')):
            Connectors().sink("kafka://h/t")
        monkeypatch.setenv("STREAMCAL_KAFKA_LIBRARY", "librdkafka")
        with pytest.raises(ValueError, match="library: Input should be 'kafka-python' or 'confluent'"):
            Connectors().sink("kafka://h/t")

    def test_options_of_a_login_have_one_of_librdkafka(self, tmp_path: Path) -> None:
        """And those that only librdkafka knows reach it."""
        for name in ("ca.pem", "cert.pem", "key.pem", "secret"):
            (tmp_path / name).write_text(SECRET)
        client: dict[str, Any] = {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(tmp_path / "ca.pem"),
            "ssl_certfile": str(tmp_path / "cert.pem"),
            "ssl_keyfile": str(tmp_path / "key.pem"),
            "ssl_password_file": str(tmp_path / "secret"),
            "ssl_check_hostname": False,
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "me",
            "sasl_plain_password_file": str(tmp_path / "secret"),
            "statistics.interval.ms": 7,
        }
        options = connection_options(["a:1", "b:2"], KafkaConfig(client=client))
        wanted = {
            "bootstrap.servers": "a:1,b:2",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": str(tmp_path / "cert.pem"),
            "ssl.key.location": str(tmp_path / "key.pem"),
            "ssl.key.password": SECRET,
            "ssl.endpoint.identification.algorithm": "none",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "me",
            "sasl.password": SECRET,
            "statistics.interval.ms": 7,
        }
        assert {name: options[name] for name in wanted} == wanted

    def test_a_url(self) -> None:
        parsed = KafkaUrl("kafka://a,[::1]:9,b:19092/my.topic?from=latest&cluster=eu")
        assert parsed.hosts == ("a:9092", "[::1]:9", "b:19092")
        assert (parsed.topic, parsed.name) == ("my.topic", "kafka:eu/my.topic")
        assert parsed.options.start == "latest"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (f'[kafka]\nsasl_password = "{SECRET}"', "sasl_password: Extra inputs are not permitted"),
            (f'[kafka]\nstall_seconds = "{SECRET}"', "stall_seconds"),
            (f"[kafka]\n{SECRET}", "is not a TOML file"),
            ("kafka = 3", "must be a table"),
            ('[kafka.client]\nssl_cafile = "/nowhere"', "ssl_cafile: there is no file"),
            (f'[kafka.client]\nsasl_plain_password = "{SECRET}"', "sasl_plain_password_file"),
            (f'[kafka.client]\n"ssl.key.pem" = "{SECRET}"', r"ssl\.key\.pem_env"),
            ('[kafka.client]\nisolation_level = "read_uncommitted"', "sets isolation_level itself"),
            ('[kafka.client]\n"enable.auto.commit" = true', r"sets enable\.auto\.commit itself"),
        ],
    )
    def test_options_that_are_refused(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "kafka.toml"
        path.write_text(text)
        with pytest.raises(ValueError, match=message) as caught:
            read_kafka_config(path)
        assert SECRET not in repr(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None

    def test_a_secret_comes_from_the_environment_or_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "secret"
        monkeypatch.setenv("THE_SECRET", SECRET)
        by_name = KafkaConfig(client={"sasl_plain_password_env": "THE_SECRET"})
        by_file = KafkaConfig(client={"sasl_plain_password_file": str(file)})
        with pytest.raises(ValueError, match="cannot read"):
            by_file.client_options()
        file.write_text(SECRET + "\n")
        for config in (by_name, by_file):
            assert config.client_options() == {"sasl_plain_password": SECRET}
            cluster = kafka_cluster.Cluster(["h:1"], config)
            shown = f"{config!r} {config} {config.model_dump_json()} {cluster!r} {cluster}"
            assert SECRET not in shown
        monkeypatch.delenv("THE_SECRET")
        with pytest.raises(ValueError, match="the environment has no variable THE_SECRET"):
            by_name.client_options()

    def test_an_option_that_kafka_python_does_not_have(self) -> None:
        with pytest.raises(ValueError, match="kafka-python has no option sasl_mecanism"):
            Connectors({"kafka": {"client": {"sasl_mecanism": "PLAIN"}}}).sink("kafka://h:1/t")

    def test_the_environment_goes_before_the_file_and_that_before_the_runs_own(self, tmp_path: Path) -> None:
        path = tmp_path / "kafka.toml"
        path.write_text("[recalibrator]\nbins = 3\n[kafka]\nstall_seconds = 7\nrequest_seconds = 8\n")
        table = {"stall_seconds": 1, "refresh_seconds": 2, "request_seconds": 3}
        environment = {"STREAMCAL_KAFKA_CONFIG": str(path), "STREAMCAL_KAFKA_STALL_SECONDS": "9"}
        config = read_kafka_config(None, environment, table)
        assert (config.stall_seconds, config.request_seconds, config.refresh_seconds) == (9.0, 8.0, 5.0)
        del environment["STREAMCAL_KAFKA_CONFIG"]
        config = read_kafka_config(None, environment, table)
        assert (config.stall_seconds, config.request_seconds, config.refresh_seconds) == (9.0, 3.0, 2.0)

    def test_the_runs_own_table_is_that_of_its_connector(self) -> None:
        connectors = Connectors({"kafka": {"stall_seconds": 0.125}})
        source: Any = connectors.source("kafka://h:1/t")
        assert source._cluster.config.stall_seconds == 0.125
        with pytest.raises(ValueError, match="--config, Kafka options: stal_seconds: Extra inputs"):
            Connectors({"kafka": {"stal_seconds": SECRET}}).sink("kafka://h:1/t")
        with pytest.raises(ValueError, match="the connector for 'sqlite' takes no options"):
            Connectors({"sqlite": {"a": 1}}).store("x")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (f'[kafka]\nsasl_password = "{SECRET}"', "sasl_password: Extra inputs are not permitted"),
            (f'[kafak]\nsasl_password = "{SECRET}"', r"unknown table \[kafak\]; known: .*kafka"),
            (f'kafka = "{SECRET}"', "kafka must be a table"),
            (f"[connectors.kafka]\na = '{SECRET}'", r"unknown table \[connectors\]"),
        ],
    )
    def test_a_configuration_that_is_refused_shows_no_secret(
        self, tmp_path: Path, text: str, message: str
    ) -> None:
        path = tmp_path / "run.toml"
        path.write_text(text)
        done = streamcal("run", "--config", path, "--events", "kafka://h/t", "--output", "-")
        assert done.returncode == 2
        assert re.search(message, done.stderr), done.stderr
        assert SECRET not in done.stderr

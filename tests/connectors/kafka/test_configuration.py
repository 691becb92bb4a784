"""URLs, the table `[kafka]`, and messages that keep secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamcal_connectors.kafka.cluster import Cluster
from streamcal_connectors.kafka.config import KafkaConfig, KafkaUrl, read_kafka_config

from tests.connectors.kafka.topics import SECRET, streamcal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kafka:///topic", "a Kafka URL is"),
        (f"kafka://me:{SECRET}@h/topic", "a URL must not have a user"),
        ("kafka://h/t?frm=latest", "frm: Extra inputs.*options: cluster, config, from, trans"),
        (f"kafka://h/t?sasl_password={SECRET}", "sasl_password: Extra inputs"),
        (f'[kafka]\nsasl_password = "{SECRET}"', "sasl_password: Extra inputs are not permitted"),
        (f"[kafka]\n{SECRET}", "is not a TOML file"),
        ('[kafka.client]\nssl_cafile = "/nowhere"', "ssl_cafile: there is no file"),
        (f'[kafka.client]\nsasl_plain_password = "{SECRET}"', r"sasl_plain_password_env"),
        (f'[kafka.client]\n"ssl.key.pem" = "{SECRET}"', r"ssl\.key\.pem_env"),
        ('[kafka.client]\nisolation_level = "read_uncommitted"', "sets isolation_level itself"),
    ],
)
def test_a_url_or_table_that_is_refused_shows_no_secret(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "kafka.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        KafkaUrl(text) if text.startswith("kafka:") else read_kafka_config(path)
    assert SECRET not in repr(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_secret_comes_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        cluster = Cluster(["h:1"], config)
        assert SECRET not in f"{config!r} {config} {config.model_dump_json()} {cluster!r} {cluster}"
    monkeypatch.delenv("THE_SECRET")
    with pytest.raises(ValueError, match="the environment has no variable THE_SECRET"):
        by_name.client_options()


@pytest.mark.slow
def test_a_command_that_is_refused_shows_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    for table, message in (
        ("kafka", "sasl_password: Extra"),
        ("kafak", r"unknown table \[kafak\]; known: .*"),
    ):
        path.write_text(f'[{table}]\nsasl_password = "{SECRET}"')
        done = streamcal("run", "--config", path, "--events", "kafka://h/t", "--output", "-", status=2)
        assert re.search(message, done.stderr), done.stderr
        assert SECRET not in done.stderr

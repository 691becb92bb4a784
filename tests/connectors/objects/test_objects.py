"""Objects of S3 as inputs and outputs: what they give is what files give, and what is refused."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from streamcal_connectors.objects import ObjectConnector

from streamcal.base.errors import OutputError
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import writing
from streamcal.run.ports import SourceOptions
from streamcal.run.rows import Recalibrated
from tests.command_line import (
    in_process,
    streamcal,
    synthetic,  # in forks, each would import s3fs: a second
)
from tests.connectors.objects.server import KEY, SECRET, fetch, served
from tests.connectors.sources import read

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """Start the server; without it, tests are skipped, but fail under CI."""
    if not os.environ.get("CI"):
        pytest.importorskip("s3fs", reason="needs s3fs: pip install '.[objects]'")
    try:
        jars = fetch()
    except RuntimeError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no server of S3: {error}")
    with served(jars) as found:
        yield found


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    yield Bucket(s3fs.S3FileSystem())
    s3fs.S3FileSystem.clear_instance_cache()


class Bucket:
    """A bucket of one test."""

    def __init__(self, files: Any) -> None:
        self.files = files
        self._name = f"bucket-{uuid.uuid4().hex[:12]}"
        files.call_s3("create_bucket", Bucket=self._name)

    def url(self, key: str) -> str:
        return f"s3://{self._name}/{key}"

    def put(self, key: str, data: bytes) -> str:
        self.files.pipe_file(f"{self._name}/{key}", data)
        return self.url(key)

    def get(self, key: str) -> bytes:
        data: bytes = self.files.cat_file(f"{self._name}/{key}")
        return data

    def keys(self) -> list[str]:
        self.files.invalidate_cache()
        return sorted(each.partition("/")[2] for each in self.files.find(self._name))


def options(given: dict[str, Any], **more: object) -> list[str]:
    return [f"--{name}={value}" for name, value in (given | more).items()]


def lines(first: int, count: int) -> bytes:
    return b"".join(b'{"id":"%d","score":0.5,"time":%d}\n' % (i, i) for i in range(first, first + count))


@pytest.mark.parametrize("ending", ["csv.gz", pytest.param("parquet", marks=pytest.mark.nightly)])
def test_a_run_gives_what_it_gives_of_files(bucket: Bucket, tmp_path: Path, ending: str) -> None:
    local = dict(zip(("calibration", "events", "labels"), synthetic(tmp_path), strict=True))
    remote = {name: bucket.put(f"in/{each.name}", each.read_bytes()) for name, each in local.items()}
    own, maps, map_file = (tmp_path / name for name in (f"answers.{ending}", "maps.jsonl", "map.json"))
    run = [*options(local, output=own, maps=maps), "--map", map_file]
    in_process("run", *run, status=0)
    answers = bucket.url(f"out/answers.{ending}")
    in_process("run", *options(remote, output=answers, maps=bucket.url("out/maps.jsonl")), status=0)
    assert bucket.get(f"out/answers.{ending}") == own.read_bytes()
    assert bucket.get("out/maps.jsonl") == maps.read_bytes()

    again = tmp_path / "again.parquet"
    apply = {"map": map_file}
    in_process("apply", *options(apply, events=own, output=again), status=0)
    in_process("apply", *options(apply, events=answers, output=bucket.url("again.parquet")), status=0)
    assert bucket.get("again.parquet") == again.read_bytes()


def test_an_object_and_a_pattern_resume_where_they_were_unless_they_changed(bucket: Bucket) -> None:
    for day in range(3):
        bucket.put(f"{day}.jsonl", lines(1000 * day, 1000))
    connector, options = ObjectConnector(), SourceOptions()
    positions = {}
    for url, days in ((bucket.url("1.jsonl"), [1]), (bucket.url("*.jsonl"), [0, 1, 2])):
        with closing(connector.source(url, options)) as source:
            source.seek({})
            found = read(source)
            assert found.ids == [str(1000 * day + i) for day in days for i in range(1000)]
            assert found.places[700][0].origin(700).source == bucket.url(f"{days[0]}.jsonl")
        for index in (700, len(days) * 1000 - 300):
            positions[url] = found.position(index)
            with closing(connector.source(url, options)) as source:
                source.seek({"": positions[url]})
                assert read(source).ids == found.ids[index + 1 :]
    for day in range(2):
        bucket.put(f"{day}.jsonl", lines(1000 * day, 1000).replace(b"0.5", b"0.6"))  # of the same size
    messages = (
        r"1\.jsonl is not the file that was read before: its first",
        r"the 2 files before .*2\.jsonl are not",
    )
    for (url, position), message in zip(positions.items(), messages, strict=True):
        with closing(connector.source(url, options)) as source, pytest.raises(ValueError, match=message):
            source.seek({"": position})


def test_an_object_appears_whole_or_not_at_all(bucket: Bucket, tmp_path: Path, monkeypatch: Any) -> None:
    answer = Recalibrated("a", 0.5, 0.4, 1, (1.0, 1.0))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for commits in (False, True):
        sink = Connectors().sink(bucket.url("a.jsonl"))
        sink.resume("", None)
        sink.write([answer])
        if commits:
            sink.commit({})
        else:
            sink.close()
    assert bucket.keys() == []
    sink.close()
    assert bucket.keys() == ["a.jsonl"]
    assert list(tmp_path.iterdir()) == []

    with pytest.raises(OSError, match=r"a\.jsonl: it exists, and an object is never replaced"):
        Connectors().sink(bucket.url("a.jsonl"))
    slow = Connectors().sink(bucket.url("b.jsonl"))
    slow.resume("", None)
    slow.write([answer])
    slow.commit({})
    bucket.put("b.jsonl", b"of another run")
    with (
        pytest.raises(OutputError, match=r"b\.jsonl: it exists.* Its rows are in .*/b\.jsonl: copy"),
        writing(slow),
    ):
        slow.close()
    assert bucket.get("b.jsonl") == b"of another run"
    (kept,) = tmp_path.glob("*/b.jsonl")
    assert b'"probability":0.4' in kept.read_bytes()


def test_what_is_refused_says_what_to_do_and_shows_no_credentials(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket.put("in.jsonl", lines(0, 10))
    everything, output, store = bucket.url("*.jsonl"), bucket.url("o.jsonl"), tmp_path / "s.db"
    for arguments, said in (
        (["--events", url, "--output", output, "--store", store], "would be written as a whole at the end"),
        (["--events", url, "--output", url], "are one and the same"),
        (["--events", everything, "--output", output], "one of the files that"),
        (["--events", bucket.url("*.csv"), "--output", "-"], "*.csv: no object matches this pattern"),
    ):
        done = in_process("run", *arguments)
        assert done.exit_code, arguments
        assert said in done.stderr
    assert bucket.keys() == ["in.jsonl"]
    for wrong, options, said in (
        (bucket.url("no.jsonl"), SourceOptions(), "no.jsonl: there is no such object"),
        (bucket.url(""), SourceOptions(), "names no object"),
        (url, SourceOptions(follow=True), "an object never grows"),
        ("s3://key:hunter2@b/c", SourceOptions(), "//…@b/c: credentials do not belong in a URL"),
        ("gs://b/c", SourceOptions(), "gs://b/c needs gcsfs: pip install"),
    ):
        with pytest.raises((OSError, ValueError), match=re.escape(said)) as refused:
            ObjectConnector().source(wrong, options)
        assert "hunter2" not in str(refused.value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong := "not-the-secret")
    done = streamcal("run", "--events", url, "--output", "-")  # here, fsspec has a client that can
    assert done.returncode
    said = f"cannot read {url}: Forbidden. Credentials and the endpoint come from the environment"
    assert said in done.stderr
    assert wrong not in done.stderr
    assert KEY not in done.stderr

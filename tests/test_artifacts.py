"""`--storage-path URI`: files in a folder and behind pyarrow's S3 client, URIs, what goes wrong before a run begins."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import InputError
from alternas.search.engine.resources import Resources
from alternas.search.redact import redact, redact_words, shown_url
from alternas.search.training.artifacts import ArtifactStore, StoreError, artifact_store, check_store, check_uri
from s3_server import S3, SECRET, listing, written

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def moto() -> Iterator[str]:
    server = pytest.importorskip("moto.server", reason="needs moto: pip install 'moto[server]'")
    at = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    at.start()
    place = "{}:{}".format(*at.get_host_and_port())
    yield f"s3://key:secret@bucket/runs?scheme=http&endpoint_override={place}&region=us-east-1&allow_bucket_creation=true"
    at.stop()


@pytest.fixture(params=["file", "s3", "moto"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/store"
    found = request.getfixturevalue(request.param)
    return found if isinstance(found, str) else found.uri()


def test_files_go_there_and_come_back(uri: str, tmp_path: Path) -> None:
    here, there = (ArtifactStore(uri, "run-1", tmp_path / name) for name in ("one", "another"))
    here.check()
    large = os.urandom(11 * 2**20)  # S3 sends it in three parts
    for content in (b"first", large, b"", b"last"):
        here.upload(written(tmp_path / "one/checkpoints/k.pt", content))
        assert there.download(tmp_path / "another/checkpoints/k.pt")
        assert (tmp_path / "another/checkpoints/k.pt").read_bytes() == content
    for name in ("checkpoints/k-1.pt", "checkpoints/other.pt", "weights/k.safetensors"):
        here.upload(written(tmp_path / "one" / name, b"x"))
    there.delete(tmp_path / "another/checkpoints/k")
    found = {name: there.download(tmp_path / "another" / name) for name in listing(tmp_path / "one")}
    assert [name for name, came in found.items() if came] == ["checkpoints/other.pt", "weights/k.safetensors"]
    assert not ArtifactStore(uri, "run-2", tmp_path / "another").download(tmp_path / "another/checkpoints/other.pt")
    here.clear()
    assert not there.download(tmp_path / "another/checkpoints/other.pt")


def test_what_is_offered_is_sent_once_and_again_where_it_is_torn(uri: str, tmp_path: Path) -> None:
    here = ArtifactStore(uri, "run-1", tmp_path)
    here.check()
    path = written(tmp_path / "weights/k.safetensors", b"whole")
    here.upload_once(path)
    path.write_bytes(b"WHOLE")
    here.upload_once(path)
    assert here.download(path)
    assert path.read_bytes() == b"whole", "of the same size: not sent again"
    here.upload(written(path, b"tor"))
    here.upload_once(written(path, b"whole"))
    here.download(path)
    assert path.read_bytes() == b"whole"


def test_half_a_file_is_never_seen(store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "run/weights/k.safetensors", b"before")
    store.upload(path)

    def half(source: Any, target: Any, size: int) -> None:
        target.write(source.read(3))
        raise OSError("the line is cut")

    monkeypatch.setattr(shutil, "copyfileobj", half)
    path.write_bytes(b"after!")
    with pytest.raises(StoreError, match=r"cannot be written \(the line is cut\)"):
        store.upload(path)
    with pytest.raises(StoreError, match="cannot be read"):
        store.download(path)
    assert path.read_bytes() == b"after!"
    assert listing(tmp_path) == ["run/weights/k.safetensors", "store/run-1/weights/k.safetensors"]
    assert (tmp_path / "store/run-1/weights/k.safetensors").read_bytes() == b"before"


@pytest.mark.parametrize("refused", ["PUT", "POST", "GET", "DELETE"])
def test_a_store_without_permission_is_said_before_all_else(s3: S3, tmp_path: Path, refused: str) -> None:
    s3.refused = {refused}
    with pytest.raises(
        InputError, match=r"^storage-path: s3://key:\*\*\*@bucket/runs\?.* cannot be (written|read|cleared) "
    ) as raised:
        check_store(ArtifactStore(s3.uri(), "run-1", tmp_path))
    assert refused == "GET" or "ACCESS_DENIED" in str(raised.value), "pyarrow says of a GET only that it failed"


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("s3://key:se%2Fcret@other/x?scheme=http&endpoint_override=HOST", "not found"),
        ("s3://", "names no bucket"),
        ("s3://key:se%2Fcret@bucket/a b", "Cannot parse URI"),
        ("s3://bucket?magic=1", "magic"),
        ("magic://bucket", "magic://bucket"),
        ("file://relative/folder", "local"),
        ("file:///dev/null/x", "cannot be written"),
    ],
)
def test_a_store_that_is_none_is_one_line(s3: S3, tmp_path: Path, uri: str, why: str) -> None:
    store = ArtifactStore(uri.replace("HOST", f"127.0.0.1:{s3.server_address[1]}"), "run-1", tmp_path)
    check_uri(store.uri)
    with pytest.raises(InputError, match=why) as raised:
        check_store(store)
    assert "\n" not in str(raised.value)
    assert SECRET not in str(raised.value)
    assert "se%2F" not in str(raised.value)


NO_URIS = [
    "/tmp/x",
    "runs",
    "s3:/bucket",
    "s3:bucket",
    "C:\\x",
    "://x",
    "s3://[/x",
    "a b://x",
    "\x1b[31m://x",
    " s3://b",
]


@pytest.mark.parametrize("uri", NO_URIS)
def test_what_is_no_uri_is_refused(uri: str) -> None:
    with pytest.raises(InputError, match="storage-path: must be a URI such as s3://BUCKET/FOLDER"):
        Resources(storage_path=uri)


def test_no_error_of_a_server_shows_a_secret() -> None:
    error = OSError("GET http://user:hunter2@host/api?x=1&token=abc123&y=2 failed,\n see https://h/?apiKey=k9'")
    said = "GET http://user:***@host/api?x=1&token=***&y=2 failed, see https://h/?apiKey=***'"
    assert redact(error) == said
    assert redact(OSError()) == "OSError"


def test_passwords_are_not_shown() -> None:
    assert shown_url("s3://AKIA:abc@bucket/a/b/?region=x") == "s3://AKIA:***@bucket/a/b?region=x"
    assert shown_url("abfs://container@account/a?sas_token=abc&x=1") == "abfs://container@account/a?sas_token=***&x=1"
    assert shown_url("file:///") == "file:///"
    words = ["search", "--storage-path=s3://AKIA:abc@bucket"]
    assert redact_words(words, "s3://AKIA:abc@bucket") == ["search", "--storage-path=s3://AKIA:***@bucket"]
    with pytest.raises(InputError, match="write %2F") as raised:
        check_uri("s3://AKIA:123/abc@bucket")
    assert "abc" not in str(raised.value)
    assert "abc" not in repr(ArtifactStore("s3://AKIA:abc@bucket", "run-1", Path()))


def test_a_run_keeps_its_folder_in_the_store(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine"
    assert artifact_store(run, "") is None
    first = artifact_store(run, "s3://k:abc@bucket/x")
    assert first
    other = artifact_store(run, "s3://k:abc@bucket/x")
    assert other
    assert first.name != other.name, "two runs of one name do not meet"
    assert first.name.startswith("runs-mine-")
    written(run / "run.json", json.dumps({"format": 4, "storage_path": first.note}).encode())
    assert "abc" not in (run / "run.json").read_text(encoding="utf-8")
    again = artifact_store(run, "s3://k:abc@bucket/x/")
    assert again
    assert again.name == first.name
    moved = artifact_store(run, "s3://k:abc@bucket/y")
    assert moved
    assert moved.name != first.name
    with pytest.raises(InputError, match=r"those of run 'mine' are in s3://k:\*\*\*@bucket/x; .* --storage-path URI"):
        artifact_store(run, "")
    note = {"uri": "file:///x", "name": "mine-1"}
    written(run / "run.json", json.dumps({"format": 4, "storage_path": note}).encode())
    assert artifact_store(run, "file:///x") == ArtifactStore("file:///x", "mine-1", run)
    with pytest.raises(InputError, match="are in file:///x"):
        artifact_store(run, "")


NOTES: list[Any] = [{}, [], "x", {"uri": "file:///x"}, {"uri": 3, "name": "x"}, {"uri": "x", "name": "x"}]


@pytest.mark.parametrize("note", [*NOTES, {"uri": "file:///x", "name": "../x"}])
def test_a_broken_note_of_it_is_one_line(tmp_path: Path, note: Any) -> None:
    written(tmp_path / "run.json", json.dumps({"format": 4, "storage_path": note}).encode())
    with pytest.raises(InputError, match=r"storage.path"):
        artifact_store(tmp_path, "")


@pytest.mark.parametrize("words", [("search", "resnet"), ("study", "data-size", "--data", "digits", "--quick")])
def test_a_command_on_a_bad_store_is_one_line_and_leaves_nothing(alternas: Any, s3: S3, words: tuple[str, ...]) -> None:
    s3.refused = {"PUT"}
    for uri, why in ((s3.uri(), "ACCESS_DENIED"), ("/shared/x", "must be a URI")):
        code, _, err = alternas(*words, "--storage-path", uri)
        assert (code, err.count("\n")) == (2, 1), err
        assert err.startswith("alternas: storage-path: ")
        assert why in err
        assert "cret" not in err
        assert not Path("runs").exists()

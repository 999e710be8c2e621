"""`alternas doctor`: each finding, and real Ray clusters of one node and of two."""

import dataclasses
import os
from pathlib import Path

import pytest
import torch

from alternas.archs import InputError
from alternas.results.runs.record import versions
from alternas.search.data.dataset import DataConfig, Pictures
from alternas.search.data.load import load
from alternas.search.engine import doctor as checkup
from alternas.search.engine.doctor import TOKEN, Check, CheckInputs, checked, drawn, look
from command_line import doctor
from far_files import FarFiles
from image_files import noise, write


@pytest.fixture
def given(tmp_path: Path) -> CheckInputs:
    digits = load(DataConfig("digits")).without_test()
    (tmp_path / TOKEN).write_text("a token", encoding="utf-8")
    return CheckInputs(versions(), str(tmp_path), "a token", FarFiles(), digits, digits)


@pytest.fixture(autouse=True)
def no_trial(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "trained" not in request.node.name:
        monkeypatch.setattr(checkup, "_trial", lambda digits: "left out")


def wrong(given: CheckInputs, gpus: float = 0) -> dict[str, str]:
    """The checks that fail, and what they say."""
    checks = look("here", given, {"CPU": 1, "GPU": gpus})
    assert [c.check for c in checks if c.check != "data"] == ["versions", "cpus", "gpus", "storage", "disk", "trial"]
    return {c.check: c.found for c in checks if not c.ok}


def test_a_fit_machine_is_fit_and_has_trained(given: CheckInputs, tmp_path: Path) -> None:
    checks = look("here", given, {"CPU": 1})
    assert [c.found for c in checks if not c.ok] == []
    assert "2 steps on" in checks[-1].found
    assert all(path.read_text(encoding="utf-8") == "a token" for path in tmp_path.iterdir())


def test_other_versions_are_named(given: CheckInputs) -> None:
    other = given.versions | {"timm": "0.1", "ray": "9"}
    found = wrong(dataclasses.replace(given, versions=other))
    assert set(found) == {"versions"}
    assert f"timm {versions()['timm']} here, 0.1 at the driver" in found["versions"]
    assert "ray" in found["versions"]
    assert "optuna" not in found["versions"]


def test_cards_that_torch_does_not_see(given: CheckInputs) -> None:

    seen = torch.cuda.device_count()
    assert wrong(given, gpus=seen + 2) == {"gpus": f"Ray counts {seen + 2}, torch sees {seen}"}


def test_cards_that_ray_does_not_count(given: CheckInputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    remedy = "ray start --num-gpus 3 has them used"
    assert wrong(given, gpus=2) == {"gpus": f"Ray counts 2, torch sees 3; {remedy}"}


def test_cpus_that_the_node_may_not_use(given: CheckInputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5}, raising=False)
    found = {c.check: c for c in look("here", given, {"CPU": 64})}["cpus"]
    remedy = "nets would share them; ray start --num-cpus 1 has each net on its own"
    assert (found.ok, found.found) == (False, f"Ray counts 64, its processes may use 1: {remedy}")


def test_files_that_are_not_the_drivers(given: CheckInputs, tmp_path: Path) -> None:
    (tmp_path / TOKEN).write_text("of another driver", encoding="utf-8")
    assert "is not what the driver has written" in wrong(given)["storage"]
    found = wrong(dataclasses.replace(given, folder=str(tmp_path / "nowhere")))
    assert found.keys() == {"storage"}
    assert "No such file" in found["storage"]


def test_a_folder_that_cannot_be_written(given: CheckInputs, tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o500)
    found = wrong(given)
    tmp_path.chmod(0o700)
    assert "PermissionError" in found["storage"]


def test_a_full_disk(given: CheckInputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "MIN_FREE", 2**60)
    assert "a search needs" in wrong(given)["disk"]


def test_pictures_that_are_not_on_the_node(given: CheckInputs, tmp_path: Path) -> None:
    for i in range(40):
        write(tmp_path / "pictures" / "ab"[i % 2] / f"{i}.png", noise(i))
    data = load(DataConfig(str(tmp_path / "pictures"), (16, 16), "stream"))
    assert isinstance(data.train.images, Pictures)
    assert wrong(dataclasses.replace(given, data=data)) == {}
    (tmp_path / "pictures").rename(tmp_path / "elsewhere")
    assert "No such file" in wrong(dataclasses.replace(given, data=data))["data"]


def test_what_is_wrong_stands_in_the_table() -> None:
    def fail() -> str:
        raise InputError("data: unknown\nvalue")

    found = checked("driver", "data", fail)
    assert found == Check("driver", "data", False, "data: unknown value")
    table = drawn([found, Check("driver", "disk", True, "[1 GiB]")])
    assert [str(cell) for cell in table.columns[2].cells] == ["NO", "ok"]


@pytest.mark.slow
def test_this_machine(tmp_path: Path) -> None:
    code, found, err = doctor(tmp_path)
    assert (code, found["ok"]) == (0, True), err
    assert [c["check"] for c in found["checks"]] == [
        *("versions", "data", "storage", "cluster"),
        *("versions", "cpus", "gpus", "data", "storage", "disk", "trial"),
    ]
    assert not list(tmp_path.iterdir()), "the folder that was made is gone"


@pytest.mark.slow
def test_a_cluster_that_is_not_there_and_data_that_are_not(tmp_path: Path) -> None:
    code, found, _ = doctor(tmp_path, "--address", "127.0.0.1:1", "--data", "no-such-set")
    assert (code, found["ok"]) == (1, False)
    assert {c["check"]: c["ok"] for c in found["checks"]} == {
        "versions": True,
        "data": False,
        "storage": True,
        "cluster": False,
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_of_two_nodes(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        code, found, err = doctor(tmp_path, "--address", cluster.address)
        nodes = {c["node"] for c in found["checks"]} - {"driver"}
        assert (code, len(nodes)) == (0, 2), (found, err)
        for node in nodes:
            assert [c["check"] for c in found["checks"] if c["node"] == node][-1] == "trial"
        size = next(c["found"] for c in found["checks"] if c["check"] == "cluster")
        assert size == "2 nodes, 2 CPUs, 0 GPUs"
    finally:
        cluster.shutdown()

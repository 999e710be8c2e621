"""Paths in another spelling: a run of the same images goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from alternas.results.runs.store import read_settings
from image_files import noise, write


@pytest.mark.usefixtures("elsewhere", "fake_pool")
def test_a_path_in_another_spelling_resumes(alternas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        write(Path("photos") / "ab"[i % 2] / f"{i}.png", noise(i))
    Path("link").symlink_to("photos")
    monkeypatch.setenv("HOME", str(Path.cwd()))
    assert alternas("search", "resnet", "--data", "digits", "--trials", "1", "--name", "other")[0] == 0
    search = ("search", "resnet", "--trials", "1", "--name", "mine", "--epochs", "1")
    assert alternas(*search, "--data", "photos", "--start-with", "other")[0] == 0
    for spelled in ("photos/", "./photos", str(Path("photos").absolute()), "photos/../photos", "link", "~/photos"):
        code, _, errors = alternas(*search, "--data", spelled, "--start-with", "runs/other/")
        assert (code, errors) == (0, ""), spelled
    assert read_settings(Path("runs/mine"))["data"]["name"] == "~/photos", "where they lay last"
    shutil.copytree("photos/a", "fewer/a")
    shutil.copytree("photos/b", "fewer/b", ignore=lambda folder, names: names[:1])
    code, _, errors = alternas(*search, "--data", "fewer", "--start-with", "other")
    assert (code, "data is '~/photos' there, 'fewer' here; data_split is" in errors) == (2, True)

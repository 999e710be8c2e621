"""How many workers fit, by what a cluster says it has. Ray itself is not started."""

from __future__ import annotations

import pytest

from alternas.archs import InputError
from alternas.search.engine import pool
from alternas.search.engine.pool import Resources


def fit(monkeypatch: pytest.MonkeyPatch, have: dict[str, float], **asked: float) -> tuple[int, float | None]:
    """Workers that fit, and GPUs of each."""
    monkeypatch.setattr(pool.ray, "cluster_resources", lambda: have)
    settled = pool._settled(Resources(**asked))  # type: ignore[arg-type]
    return pool._slots(settled), settled.gpus


@pytest.mark.parametrize(
    ("have", "asked", "found"),
    [
        ({"CPU": 2.0}, {}, (2, 0.0)),
        ({"CPU": 2.0}, {"cpus": 0.5}, (4, 0.0)),
        ({"CPU": 3.0}, {"cpus": 2.0}, (1, 0.0)),
        ({"CPU": 10.0}, {"cpus": 0.1}, (100, 0.0)),
        ({"CPU": 16.0, "GPU": 2.0}, {}, (2, 1.0)),
        ({"CPU": 16.0, "GPU": 2.0}, {"gpus": 0.0}, (16, 0.0)),
        ({"CPU": 16.0, "GPU": 2.0}, {"gpus": 0.25}, (8, 0.25)),
        ({"CPU": 64.0, "GPU": 2.0}, {"gpus": 0.15}, (12, 0.15)),
        ({"CPU": 64.0, "GPU": 8.0}, {"gpus": 4.0}, (2, 4.0)),
        ({"CPU": 4.0, "GPU": 8.0}, {}, (4, 1.0)),
        ({"CPU": 8.0}, {"workers": 3}, (3, 0.0)),
    ],
)
def test_workers_that_fit(
    monkeypatch: pytest.MonkeyPatch, have: dict[str, float], asked: dict[str, float], found: tuple[int, float]
) -> None:
    assert fit(monkeypatch, have, **asked) == found


@pytest.mark.parametrize(
    ("have", "asked", "hint"),
    [
        ({"CPU": 2.0}, {"cpus": 4.0}, "cpus-per-trial"),
        ({"CPU": 2.0}, {"gpus": 1.0}, "gpus-per-trial"),
        ({"CPU": 2.0}, {"workers": 3}, "workers: 3 asked for"),
        ({}, {}, "cpus-per-trial"),
    ],
)
def test_what_does_not_fit_is_named(
    monkeypatch: pytest.MonkeyPatch, have: dict[str, float], asked: dict[str, float], hint: str
) -> None:
    with pytest.raises(InputError, match=hint):
        fit(monkeypatch, have, **asked)

"""What analyses say: of each sentence that judges, numbers for which it is said and numbers for which it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from alternas.results.analysis import attention_distance as distance
from alternas.results.analysis import cka, fourier, hessian, landscape, lesion, robustness, rollout, variance
from alternas.results.analysis import frequency_noise as noise
from alternas.results.analysis import head_cka as heads
from alternas.results.analysis import linear_probe as linear
from alternas.results.analysis import patch_filters as filters
from alternas.results.analysis import position_embeddings as positions
from alternas.results.analysis import receptive_field as field
from alternas.results.analysis import skip_connections as skips
from alternas.results.analysis import token_localization as tokens
from alternas.results.analysis.attention_distance import LayerDistance
from alternas.results.analysis.registry import ANALYSES
from alternas.results.analysis_tools.hooks import HookPoint


def blocks(op: str, *changes: float, height: int = 8) -> list[dict[str, Any]]:
    """Rows of `variance` and `fourier`."""
    return [
        {"place": i, "site": f"{op} {i}", "op": op, "height": height, "frequency_pi": 0.75, "log_amplitude": -1.0}
        | {"variance": 2.0, "change": change}
        for i, change in enumerate(changes, {"conv": 100, "msa": 200}[op])
    ]


def changed(*changes: tuple[float, float], **more: Any) -> list[dict[str, Any]]:
    """Rows of `lesion`, `skips` and `noise`: changes of accuracy, and half of their interval's width."""
    row = {"unit": "conv1", "op": "conv", "how": "", "place": "block 1", "ratio": 1.0, "ratio_cls": None}
    return [
        row | {"accuracy": 0.9, "frequency_pi": 0.25 + 0.5 * (i % 2), "change": c, "low": c - h, "high": c + h} | more
        for i, (c, h) in enumerate(changes)
    ]


def passed(cls: tuple[float, ...], others: tuple[float, ...]) -> str:
    rows = [changed((-0.1, 0.2), ratio=o, ratio_cls=c)[0] for c, o in zip(cls, others, strict=True)]
    return skips._summary(rows, 50)


def costs(low: float, high: float, spread: float) -> str:
    """A summary of `noise`: mean changes at a low and a high frequency, which swing from image to image."""
    swing_N = spread * torch.tensor([1.0, -1.0]).repeat(20)
    return noise._summary(0.9, changed((-0.2, 0.1), (-0.2, 0.1)), [low + swing_N, high - swing_N], 0.7, 2)


def grid_tokens(best: Callable[[int, int], tuple[int, int]], side: int = 4) -> str:
    rows = []
    for r in range(side):
        for c in range(side):
            to = best(r, c)
            off = float(np.hypot(to[0] - r, to[1] - c))
            rows.append({"row": r, "column": c, "own": 0.2, "rank": 1 if to == (r, c) else 2})
            rows[-1] |= {"best_row": to[0], "best_column": to[1], "cells_off": off}
    return tokens._summary(rows, HookPoint("last", "", "out", "mlp", "1"), (side, side), 50)


def by_head(*heads_at: tuple[float, float]) -> str:
    rows = [{"layer": "1", "head": i, "distance_px": d, "place": "a", "cka": c} for i, (d, c) in enumerate(heads_at)]
    return heads._summary(rows, "cnn", 50)


def probed(*accuracies: float, test: int = 100) -> str:
    names = [f"block {i}" for i in range(len(accuracies))]
    gap = [{"place": n, "features": "gap", "accuracy": a} for n, a in zip(names, accuracies, strict=True)]
    return linear._summary([*gap, {"place": names[-1], "features": "token 0,0", "accuracy": 0.2}], names, test)


def placed(near: float, line: float, rest: float, swing: float = 0.0) -> str:
    rows = [
        {"table": "encoder", "row": i // 4, "column": i % 4, "elsewhere": rest}
        | {"neighbours": near + (-1) ** i * swing, "same_row": line, "same_column": line}
        for i in range(16)
    ]
    return positions._summary(rows)


def corrupted(**accuracies: float) -> str:
    clean = {"corruption": "clean", "group": "clean", "accuracy": 0.9, "ece": 0.1}
    rest = [{"corruption": n, "group": "blur", "accuracy": a, "ece": 0.05} for n, a in accuracies.items()]
    return robustness._summary([clean, *rest], 100)


def seen(*sides: float) -> str:
    rows = [
        {"place": f"block {i}", "op": "conv", "side_50_px": s, "side_90_px": 2 * s, "image_px": 32, "images": 8}
        for i, s in enumerate(sides)
    ]
    return field._summary(rows)


def surface(height: Callable[[float, float], float]) -> str:
    steps = [i / 2 - 1 for i in range(5)]
    rows = [{"a": a, "b": b, "nll": 0.1, "l2": 0.0, "loss": height(a, b)} for a in steps for b in steps]
    return landscape._summary(rows, 5, "256 images; cross-entropy")


def curved(*least: float) -> str:
    rows = [
        {"minibatch": b, "images": 16, "rank": r, "eigenvalue": 9.0, "error": 0.1, "smallest_ritz": v, "steps": 20}
        for b, v in enumerate(least)
        for r in range(1, 6)
    ]
    return hessian._summary(rows, "images", "cross-entropy")


def mapped(cka_LL: Any) -> str:
    sites = [HookPoint(str(i), str(i), "out", "conv", stage) for i, stage in enumerate("0111222333")]
    return cka._summary_of_one(np.array(cka_LL), sites)


def matched(best: list[int]) -> str:
    sites = [[HookPoint(str(i), str(i), "out", "conv", "1") for i in range(4)]] * 2
    return cka._summary_of_two(np.eye(4)[best], sites, ["one", "two"])


def drawn(shares: list[list[float]]) -> str:
    return rollout._summary([{"tokens": 2.0} for _ in shares], np.array(shares))


STAGES = np.array([0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
DEPTH = np.arange(10)
SMOOTH = np.exp(-np.abs(DEPTH[:, None] - DEPTH) / 4)
FAR = {"even": 10.0, "furthest": 20.0}

# analysis: (a part of a sentence, a summary with it, summaries without it)
SAID: dict[str, list[tuple[str, str, list[str]]]] = {
    "variance": [
        ("2 of 2 conv blocks raise it", variance._summary(blocks("conv", 1.0, 2.0), 9), [
            variance._summary(blocks("conv", 1.0, -2.0), 9),
        ]),
        ("Each MSA adds less than each conv", variance._summary([*blocks("conv", 1.0), *blocks("msa", -1.0, 0.9)], 9), [
            variance._summary([*blocks("conv", 1.0), *blocks("msa", -9.0, 1.1)], 9),
            variance._summary([*blocks("conv", 1.0), *blocks("msa", -9.0, height=4)], 9),
        ]),
    ],
    "fourier": [
        (": as Park & Kim found", fourier._summary(blocks("msa", -1.0, -1.1, -0.9), 9), [
            fourier._summary(blocks("msa", -1.0), 9),
            fourier._summary(blocks("msa", -1.0, -9.0), 9),
            fourier._summary(blocks("conv", -1.0, -1.1, -0.9), 9),
        ]),
        (": other than Park & Kim found", fourier._summary(blocks("conv", -1.0, -1.1, -0.9), 9), [
            fourier._summary(blocks("conv", 1.0, 1.1, 0.9), 9),
            fourier._summary(blocks("conv", -1.0, 1.1, -0.9), 9),
        ]),
    ],
    "lesion": [
        ("The largest loss is without", lesion._summary(0.9, changed((-0.5, 0.1), (0.0, 0.1)), 50), [
            lesion._summary(0.9, changed((-0.05, 0.1), (0.0, 0.1)), 50),
            lesion._summary(0.9, changed((0.2, 0.1)), 50),
        ]),
        ("1 of the others' overlap", lesion._summary(0.9, changed((-0.5, 0.1), (-0.4, 0.1)), 50), [
            lesion._summary(0.9, changed((-0.5, 0.1), (-0.2, 0.1)), 50),
        ]),
        ("1 of the 2 units' 95 % intervals over images hold 0", lesion._summary(
            0.9, changed((-0.5, 0.1), (0.0, 0.1)), 50), [lesion._summary(0.9, changed((-0.5, 0.1), (0.2, 0.1)), 50)],
        ),
    ],
    "skips": [
        ("The largest loss is without the skip", skips._summary(changed((-0.5, 0.1), (0.0, 0.1)), 50), [
            skips._summary(changed((-0.05, 0.1), (0.0, 0.1)), 50),
        ]),
        ("Beside its branch the skip is largest", passed((1.0, 1.0), (1.0, 3.0)), [passed((1.0, 1.0), (2.0, 2.0))]),
        ("in the order of the paper's ViT", passed((2.0, 1.0), (1.0, 2.0)), [
            passed((1.0, 2.0), (1.0, 2.0)), passed((2.0, 1.0), (2.0, 1.0)), passed((1.0, 1.0), (1.0, 2.0)),
        ]),
    ],
    "cka": [
        ("the map falls into blocks", mapped(0.1 + 0.8 * (STAGES[:, None] == STAGES)), [
            mapped(SMOOTH), mapped(np.full((10, 10), 0.7)), mapped(SMOOTH**4),
            mapped(0.1 + 0.8 * ((DEPTH[:, None] // 2) == (DEPTH // 2))),
        ]),
        ("no blocks at the ends of stages are told", mapped(SMOOTH), [mapped(0.1 + (STAGES[:, None] == STAGES))]),
    ],
    "cka_between": [
        ("the best match never goes back", matched([0, 0, 2, 3]), [matched([1, 0, 2, 3]), matched([2, 2, 2, 2])]),
        ("have the same best match", matched([2, 2, 2, 2]), [matched([2, 2, 2, 3])]),
    ],
    "linear": [
        ("Half of the rise to it is there at block 1", probed(0.2, 0.6, 0.8), [
            probed(0.8, 0.6, 0.2), probed(0.2, 0.3, 0.8), probed(0.2, 0.6, 0.8, test=2),
        ]),
        ("a rise by no more than two standard errors", probed(0.5, 0.55), [probed(0.2, 0.8)]),
    ],
    "field": [
        ("widens most at block 2", seen(3, 5, 9, 10), [seen(3, 9, 10, 11), seen(9, 9, 9)]),
        ("and as much at 1 more", seen(3, 5, 7), [seen(3, 5, 9)]),
        ("widens nowhere", seen(9, 9, 5), [seen(3, 5, 5)]),
        ("At no place is the gradient", seen(float("nan")), [seen(3)]),
        ("At 1 places the gradient is 0", seen(3, float("nan")), [seen(3, 5)]),
    ],
    "tokens": [
        ("most tokens kept their place", grid_tokens(lambda r, c: (r, c)), [
            grid_tokens(lambda r, c: (r, 0)), grid_tokens(lambda r, c: (0, 0)),
            grid_tokens(lambda r, c: (r, c) if c < 2 else (3 - r, 0)),
        ]),
        ("places are blurred, but not lost", grid_tokens(lambda r, c: (r, max(c - 1, 0))), [
            grid_tokens(lambda r, c: (3 - r, 3 - c)), grid_tokens(lambda r, c: (2, 2), 8),
            grid_tokens(lambda r, c: (r, c)),
        ]),
        ("no more than chance would give", grid_tokens(lambda r, c: (2, 2), 8), [grid_tokens(lambda r, c: (r, c))]),
    ],
    "distance": [
        ("1 of 3 less than half as far as even attention and 1 more than 0.8 times as far",
         distance._summary({"1": LayerDistance([3.0, 6.0, 9.0], **FAR)}, 9), [
            distance._summary({"1": LayerDistance([6.0, 6.0, 9.0], **FAR)}, 9),
            distance._summary({"1": LayerDistance([3.0, 6.0, 7.0], **FAR)}, 9),
        ]),
    ],
    "heads": [
        ("nearer heads tend to be more like", by_head(*[(i, 1 - i / 10) for i in range(8)]), [
            by_head(*[(i, i / 10) for i in range(8)]), by_head((1, 0.9), (2, 0.5), (3, 0.1)),
            by_head(*[(i, (i * 5 % 8) / 10) for i in range(8)]),
        ]),
        ("no trend is told", by_head((1, 0.9), (2, 0.5), (3, 0.1)), [by_head(*[(i, i / 10) for i in range(8)])]),
    ],
    "rollout": [
        ("differ by 0.0%", drawn([[0.5, 0.5]] * 3), [drawn([[0.9, 0.1], [0.1, 0.9]])]),
        ("From their common mean", drawn([[0.9, 0.1], [0.1, 0.9]]), [drawn([[0.9, 0.1]])]),
    ],
    "positions": [
        ("neighbours are more alike than others", placed(0.6, 0.1, 0.0), [
            placed(0.0, 0.6, 0.0), placed(0.05, 0.0, 0.0), placed(0.15, 0.0, 0.0, swing=2.0),
        ]),
        ("rows and columns are more alike", placed(0.0, 0.6, 0.0), [placed(0.6, 0.05, 0.0)]),
        ("neither neighbours nor rows", placed(0.5, 0.5, 0.5), [placed(0.6, 0.1, 0.0)]),
    ],
    "noise": [
        ("at this energy low ones cost more", costs(-0.5, -0.2, 0.1), [
            costs(-0.2, -0.5, 0.1), costs(-0.3, -0.28, 0.4), costs(-0.3, -0.3, 0.0),
        ]),
        ("at this energy high ones cost more", costs(-0.2, -0.5, 0.1), [costs(-0.5, -0.2, 0.1)]),
        ("The largest loss is at", costs(-0.2, -0.2, 0.1), [
            noise._summary(0.9, changed((-0.05, 0.1)), [torch.zeros(9)], 0.7, 2),
        ]),
    ],
    "robustness": [
        ("The lowest mean is that of fog (", corrupted(fog=0.3, snow=0.8), [
            corrupted(fog=0.8, snow=0.3), corrupted(fog=0.3, frost=0.3, snow=0.8), corrupted(fog=0.5, snow=0.5),
        ]),
    ],
    "hessian": [
        ("is not convex around these weights", curved(-1.0, 0.1), [curved(0.1, 0.0), curved(-1e-12)]),
        ("does not prove that there is none", curved(0.1, 0.0), [curved(-1.0, 0.1)]),
    ],
    "landscape": [
        ("None of the other 24 points is lower", surface(lambda a, b: a * a + b * b), [surface(lambda a, b: a)]),
        ("has one local minimum", surface(lambda a, b: a * a + b * b), [
            surface(lambda a, b: a), surface(lambda a, b: (a * a - 0.25) ** 2 + b * b),
        ]),
        ("The lowest point is elsewhere", surface(lambda a, b: a), [surface(lambda a, b: 1.0)]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("analysis", SAID)
def test_a_sentence_is_said_of_its_numbers_alone(analysis: str) -> None:
    for part, said, others in SAID[analysis]:
        assert part in said
        assert others
        for other in others:
            assert part not in other


def test_filters_are_held_against_noise() -> None:
    """The count beside them is that of noise: filters that are noise need as many."""
    net = torch.nn.Conv2d(3, 64, 4, 4)
    torch.nn.init.normal_(net.weight, generator=torch.Generator().manual_seed(0))
    _, shares = filters.components(net.weight.detach())
    assert abs(int((shares.cumsum(0) < filters.MOST).sum()) + 1 - filters._enough_of_noise(net.weight.shape)) <= 2


def test_all_analyses_are_here() -> None:
    assert set(SAID) | {"filters"} == set(ANALYSES)


def test_no_summary_has_words_that_numbers_cannot_bear() -> None:
    """Of one net, some images and one training nobody is better, and nothing is proved or lost."""
    strong = ("looks convex", "hurt more", "says nothing", "are lost", "proves that", "always", "dearest")
    for analysis, said in SAID.items():
        for _, summary, others in said:
            for text in (summary, *others):
                assert not [words for words in strong if words in text], analysis
                assert "nan" not in text.replace("nan px", ""), analysis

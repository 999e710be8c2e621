"""Segmentation as FCN does it (Long et al., CVPR 2015): which pixels of a made picture are a disc, which a square.

alternas search alternet --trainer ./segmentation.py --metric miou --trials 8 --epochs 4
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

IMAGE_SIZE, CLASSES, IMAGES = 16, ("ground", "disc", "square"), 512  # what nets are sized by, and an epoch


def pictures(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with a disc and a square on it, and the class of each pixel."""
    draw, at = np.random.default_rng(seed), np.arange(IMAGE_SIZE)
    x = draw.normal(0, 0.5, (count, 3, IMAGE_SIZE, IMAGE_SIZE))
    y = np.zeros((count, IMAGE_SIZE, IMAGE_SIZE), np.int64)
    for kind, norm in (1, np.hypot), (2, np.maximum):
        row, column = draw.integers(3, IMAGE_SIZE - 3, (2, count, 1, 1))
        shape = norm(abs(at[:, None] - row), abs(at - column)) < draw.integers(2, 5, (count, 1, 1))
        x += shape[:, None] * draw.normal(1, 0.2, (count, 3, 1, 1))
        y[shape] = kind
    return torch.from_numpy(x).float(), torch.from_numpy(y)


class Head(nn.ModuleList):
    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__(nn.Conv2d(c, len(CLASSES), 1) for c in channels)

    def forward(self, maps: list[torch.Tensor]):
        return sum(F.interpolate(side(x), IMAGE_SIZE, mode="bilinear") for side, x in zip(self, maps, strict=True))


@torch.no_grad()
def scores(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    guess = model.eval()(x).argmax(1)
    model.train()
    ious = [((guess == k) & (y == k)).sum() / ((guess == k) | (y == k)).sum() for k in range(len(CLASSES))]
    return {"miou": torch.stack(ious).mean(), "accuracy": (guess == y).float().mean()}


def train(context) -> None:
    features = context.features()
    model = nn.Sequential(features, Head(features.channels)).to(context.device)
    (x, y), val = pictures(IMAGES, seed=0), [part.to(context.device) for part in pictures(128, seed=1)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    if state := context.load():
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(context.step + 1, context.stop_step + 1):
        chosen = np.random.default_rng((context.seed, step)).integers(0, IMAGES, context.recipe.batch_size)
        loss = F.cross_entropy(model(x[chosen].to(context.device)), y[chosen].to(context.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 16 == 0 or step == context.stop_step:
            context.report(step, loss=loss, **scores(model, *val))
            context.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    context.keep(model[1])

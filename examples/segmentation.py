"""Segmentation: which pixels of a made picture are a disc, which a square; judged by mean IoU.

alternas search alternet --trainer ./segmentation.py --metric miou --trials 8 --epochs 4
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

IMAGE_SIZE, CLASSES, IMAGES = 16, ("ground", "disc", "square"), 512  # what nets are sized by, and an epoch


def pictures(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with a disc and a square on it, and the class of each pixel."""
    draw = np.random.default_rng(seed)
    rows, columns = np.mgrid[:IMAGE_SIZE, :IMAGE_SIZE]
    x = draw.normal(0, 0.5, (count, 3, IMAGE_SIZE, IMAGE_SIZE)).astype(np.float32)
    y = np.zeros((count, IMAGE_SIZE, IMAGE_SIZE), np.int64)
    for i in range(count):
        for kind in draw.permutation([1, 2]):
            (row, column), radius = draw.integers(3, IMAGE_SIZE - 3, 2), draw.integers(2, 5)
            away = np.stack([abs(rows - row), abs(columns - column)])
            shape = (away**2).sum(0) <= radius**2 if kind == 1 else away.max(0) < radius
            x[i, :, shape] += draw.normal(1, 0.2, 3)
            y[i][shape] = kind
    return torch.from_numpy(x), torch.from_numpy(y)


class Head(nn.Module):
    """Each map to 16 channels and the picture's size; their sum to classes."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.sides = nn.ModuleList(nn.Conv2d(c, 16, 1) for c in channels)
        self.out = nn.Sequential(nn.ReLU(), nn.Conv2d(16, len(CLASSES), 3, padding=1))

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        sides = (side(x) for side, x in zip(self.sides, maps, strict=True))
        return self.out(sum(F.interpolate(x, IMAGE_SIZE, mode="bilinear") for x in sides))


@torch.no_grad()
def scores(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    guess = model.eval()(x).argmax(1)
    model.train()
    ious = [((guess == k) & (y == k)).sum() / ((guess == k) | (y == k)).sum() for k in range(len(CLASSES))]
    return {"miou": torch.stack(ious).mean(), "accuracy": (guess == y).float().mean()}


def train(context) -> None:
    features = context.features()
    head = Head(features.channels).to(context.device)
    model = nn.Sequential(features, head)
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
    context.keep(head)

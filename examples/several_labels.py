"""Several labels a picture: which of four shapes are on it, judged by mean average precision.

alternas search alternet --trainer ./several_labels.py --metric map --trials 8 --epochs 4
"""

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score

IMAGE_SIZE, IN_CHANS, IMAGES = 16, 1, 512
CLASSES = ("row", "column", "square", "dot")  # a logit each
EVERY = 16  # steps between two evaluations


def pictures(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with any of the shapes on it, and which they are."""
    draw = np.random.default_rng(seed)
    x = draw.normal(0, 0.7, (count, 1, IMAGE_SIZE, IMAGE_SIZE)).astype(np.float32)
    y = draw.integers(0, 2, (count, len(CLASSES)))
    for i in range(count):
        at = draw.integers(2, IMAGE_SIZE - 5, (len(CLASSES), 2))
        heights, widths = (1, 8, 4, 2), (8, 1, 4, 2)
        for shape in np.flatnonzero(y[i]):
            row, column = at[shape]
            x[i, 0, row : row + heights[shape], column : column + widths[shape]] += 1.5
    return torch.from_numpy(x), torch.from_numpy(y).float()


def train(context) -> None:
    net, (x, y), (x_val, y_val) = context.net, pictures(IMAGES, seed=0), pictures(256, seed=1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    if state := context.load():
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(context.step + 1, context.stop_step + 1):
        chosen = np.random.default_rng((context.seed, step)).integers(0, IMAGES, context.recipe.batch_size)
        net.train()
        logits = net(x[chosen].to(context.device))
        loss = F.binary_cross_entropy_with_logits(logits, y[chosen].to(context.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0 or step == context.stop_step:
            net.eval()
            with torch.no_grad():
                scores = net(x_val.to(context.device)).sigmoid().cpu()
            right = ((scores > 0.5) == y_val).float().mean()
            context.report(step, loss=loss, map=average_precision_score(y_val, scores), accuracy=right)
            context.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()})

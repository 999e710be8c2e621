"""A training of one's own on the search's data: focal loss (Lin et al., ICCV 2017), a DataLoader, SGD.

alternas search alternet --trainer ./my_training.py --trials 8 --epochs 2
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from alternas.search.training.train_context import TrainContext

GAMMA = 2.0


def train(context: TrainContext) -> None:
    net, recipe, data = context.net, context.recipe, context.data
    loader = DataLoader(tensors(data, data.train), batch_sampler=Shuffled(context, len(data.train)))
    val = DataLoader(tensors(data, data.val), batch_size=256)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    if state := context.load():  # after a kill, at the next rung, or on another node
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
    every = recipe.steps_per_epoch(len(data.train))
    net.train()
    for step, (x, y) in enumerate(loader, start=context.step + 1):
        loss = focal_loss(net(x.to(context.device)), y.to(context.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0 or step == context.stop_step:
            context.report(step, loss=loss.item(), accuracy=accuracy(net, val, context.device))
            context.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()})


def focal_loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    log_p = F.log_softmax(logits, dim=1).gather(1, y[:, None]).squeeze(1)
    return -((1 - log_p.exp()) ** GAMMA * log_p).mean()


def accuracy(net: torch.nn.Module, val: DataLoader, device: torch.device) -> float:
    net.eval()
    with torch.no_grad():
        right = torch.cat([net(x.to(device)).argmax(1).cpu() == y for x, y in val])
    net.train()
    return right.float().mean().item()


def tensors(data, split) -> TensorDataset:
    mean, std = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (data.mean, data.std))
    return TensorDataset(torch.from_numpy((split.images - mean) / std).float(), torch.from_numpy(split.y_N).long())


class Shuffled:
    """The images of each step from where the training goes on to where it stops: a function of seed and step."""

    def __init__(self, context: TrainContext, images: int) -> None:
        self.context, self.images = context, images

    def __iter__(self):
        for step in range(self.context.step, self.context.stop_step):
            order = np.random.default_rng((self.context.seed, step)).permutation(self.images)
            yield order[: self.context.recipe.batch_size].tolist()

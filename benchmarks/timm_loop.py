"""timm's training loop and loader, as its train.py has them, fed with a data set and a recipe of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from timm.data.loader import create_loader
from timm.data.transforms import ToNumpy
from timm.optim._optim_factory import create_optimizer_v2
from timm.scheduler.cosine_lr import CosineLRScheduler
from timm.utils.clip_grad import dispatch_clip_grad
from timm.utils.metrics import AverageMeter
from timm.utils.model_ema import ModelEmaV3
from torch import Tensor, nn
from torchvision import transforms

from alternas.search.data.dataset import DataSet, Split
from alternas.search.training.recipe import Recipe


class Listed(torch.utils.data.Dataset[Any]):
    """Arrays as PIL images, as timm's loader wants them."""

    def __init__(self, split: Split) -> None:
        self.split, self.transform = split, None

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, place: int) -> Any:
        array = np.asarray(self.split.images)[place]
        image = Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0))
        return self.transform(image) if self.transform else image, int(self.split.y_N[place])


def timm_loader(data: DataSet, recipe: Recipe, workers: int) -> Any:
    """timm's loader, with the recipe's augmentation."""
    size, channels = data.image_size, data.in_chans
    mean, std = (tuple(v / 255 for v in values) for values in (data.mean, data.std))
    listed: Any = Listed(data.train)
    loader = create_loader(
        listed, (channels, *size), recipe.batch_size, is_training=True, mean=mean, std=std,
        num_workers=workers, device=torch.device("cpu"), persistent_workers=False,
    )  # fmt: skip
    steps: list[Any] = []
    if recipe.augment.pad:
        steps.append(transforms.RandomCrop(size, padding=recipe.augment.pad))
    if recipe.augment.flip:
        steps.append(transforms.RandomHorizontalFlip())
    listed.transform = transforms.Compose([*steps, ToNumpy()])
    return loader


class TimmLoop:
    """timm's train_one_epoch, as its train.py has it: its optimiser, EMA, clipping, schedule and meter."""

    def __init__(self, model: nn.Module, recipe: Recipe, steps: int) -> None:
        self.model, self.recipe, self.step = model.train(), recipe, 0
        self.optimizer = create_optimizer_v2(model, recipe.optimizer, recipe.lr, recipe.weight_decay, recipe.momentum)
        self.ema = ModelEmaV3(model, decay=recipe.ema_decay, use_warmup=True, warmup_gamma=9, warmup_power=1.0)
        warm = round(recipe.warmup * steps)
        self.scheduler = CosineLRScheduler(
            self.optimizer, steps, warmup_t=warm, warmup_lr_init=recipe.lr / warm, warmup_prefix=True, t_in_epochs=False
        )
        self.meter = AverageMeter()

    def __call__(self, x_BCHW: Tensor, y_B: Tensor) -> None:
        self.scheduler.step_update(num_updates=self.step)
        loss = F.cross_entropy(self.model(x_BCHW), y_B, label_smoothing=self.recipe.label_smoothing)
        loss.backward()
        dispatch_clip_grad(self.model.parameters(), self.recipe.clip_grad)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.ema.update(self.model, step=self.step)
        self.meter.update(loss.item(), len(x_BCHW))

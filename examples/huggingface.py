"""A training by Hugging Face's Trainer: which way the stripes of a made picture run.

alternas search alternet --trainer ./huggingface.py --trials 8 --epochs 8    # pip install transformers accelerate
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments  # pyright: ignore[reportMissingImports]

IMAGE_SIZE, IN_CHANS, CLASSES, IMAGES = 16, 1, ("0", "45", "90", "135"), 512  # degrees


def pictures(count: int, seed: int) -> Any:
    """Stripes under noise, and which way they run: a list is data set enough for Trainer."""
    draw, at = np.random.default_rng(seed), np.arange(IMAGE_SIZE)
    y = draw.integers(0, len(CLASSES), count)
    angle, phase = np.deg2rad(45 * y)[:, None, None], draw.uniform(0, 2 * np.pi, (count, 1, 1))
    waves = np.sin(at * np.cos(angle) + at[:, None] * np.sin(angle) + phase)
    x = (waves + draw.normal(0, 1.5, waves.shape)).astype(np.float32)
    return [{"x": x[i : i + 1], "labels": y[i]} for i in range(count)]


class WithLoss(nn.Module):
    """A net as Trainer takes it: with the loss among its outputs."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Reports(TrainerCallback):
    """Has Trainer evaluate, save and stop; reports the metric, and keeps Trainer's checkpoint as bytes."""

    def __init__(self, context) -> None:
        self.context = context

    def on_step_end(self, args, state, control, **_) -> None:
        control.should_training_stop = state.global_step == self.context.stop_step
        control.should_evaluate = control.should_save = control.should_training_stop or state.global_step % 16 == 0

    def on_evaluate(self, args, state, control, **told) -> None:
        loss, accuracy = told["metrics"]["eval_loss"], told["metrics"]["eval_accuracy"]
        self.context.report(state.global_step, loss=loss, accuracy=accuracy)

    def on_save(self, args, state, control, **_) -> None:
        files = Path(args.output_dir, f"checkpoint-{state.global_step}").iterdir()
        self.context.save({file.name: torch.from_numpy(np.fromfile(file, np.uint8)) for file in files})


def train(context) -> None:
    how = {"max_steps": context.total_steps, "per_device_train_batch_size": context.recipe.batch_size}
    how |= {"learning_rate": 2e-3, "seed": context.seed, "use_cpu": context.device.type == "cpu"}
    with TemporaryDirectory() as folder:
        trainer = Trainer(
            WithLoss(context.net.to(memory_format=torch.contiguous_format)),  # as Trainer's checkpoints want it
            TrainingArguments(folder, save_strategy="no", report_to="none", disable_tqdm=True, **how),
            train_dataset=pictures(IMAGES, seed=0),
            eval_dataset=pictures(256, seed=1),
            compute_metrics=lambda p: {"accuracy": np.mean(np.argmax(p.predictions, 1) == p.label_ids)},
            callbacks=[Reports(context)],
        )
        if state := context.load():
            for name, content in state.items():
                Path(folder, name).write_bytes(content.cpu().numpy().tobytes())
        trainer.train(resume_from_checkpoint=folder if state else None)

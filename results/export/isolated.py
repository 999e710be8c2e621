"""Loads each format of an exported folder in a process without alternas, and writes its logits.

Run as a script: `python -P isolated.py FOLDER IMAGES.npy WORK FORMAT ...`. It writes WORK/FORMAT.npy for
each format: the logits of the first image alone, then of all. It imports nothing of alternas itself.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 64  # more than a check on a run's sample has, which is one batch
Answer = Callable[[np.ndarray], np.ndarray]  # raw images (N, C, H, W) -> logits (N, K)


def package(folder: Path) -> Answer:
    """By model.py: its `load` and its own `preprocess`."""
    model = _module(folder, "model")
    net = model.load()
    return lambda images: _run(net, model.preprocess(images))


def timm(folder: Path) -> Answer:
    """By timm's `create_model` after an import of timm_model.py; in the two halves that timm's nets have."""
    import timm as installed

    net: Any = installed.create_model(_module(folder, "timm_model").NAME, pretrained=True).eval()
    return lambda images: _run(lambda x: net.forward_head(net.forward_features(x)), _normalised(folder, images))


def pt2(folder: Path) -> Answer:
    """By torch.export.load of model.pt2."""
    return _program(folder, "model.pt2")


def pt2_bf16(folder: Path) -> Answer:
    """By torch.export.load of model.bf16.pt2."""
    return _program(folder, "model.bf16.pt2")


def onnx(folder: Path) -> Answer:
    """By onnxruntime on the CPU, of model.onnx."""
    return _session(folder, "model.onnx")


def onnx_int8(folder: Path) -> Answer:
    """By onnxruntime on the CPU, of model.int8.onnx."""
    return _session(folder, "model.int8.onnx")


def onnx_fp16(folder: Path) -> Answer:
    """By onnxruntime on the CPU, of model.fp16.onnx."""
    return _session(folder, "model.fp16.onnx")


def openvino(folder: Path) -> Answer:
    """By OpenVINO on the CPU, in float32, of model.xml."""
    installed: Any = importlib.import_module("openvino")  # of an extra of its own
    net = installed.Core().compile_model(folder / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda images: np.array(net(_normalised(folder, images))["logits"])


def litert(folder: Path) -> Answer:
    """By LiteRT's interpreter of model.tflite, one image after the other."""
    net: Any = importlib.import_module("ai_edge_litert.interpreter").Interpreter(str(folder / "model.tflite"))
    net.allocate_tensors()
    given, answer = net.get_input_details()[0]["index"], net.get_output_details()[0]["index"]

    def one(x_CHW: np.ndarray) -> np.ndarray:
        net.set_tensor(given, x_CHW[None])
        net.invoke()
        return net.get_tensor(answer)[0]

    return lambda images: np.stack([one(x_CHW) for x_CHW in _normalised(folder, images)])


def logits(folder: Path, name: str, images: np.ndarray) -> np.ndarray:
    """Logits of format `name` for raw images (N, C, H, W): of the first alone, then of all, in batches of `BATCH`."""
    load: Callable[[Path], Answer] = globals()[name.replace("-", "_")]  # the function above that has its name
    answer = load(folder)
    return np.concatenate([answer(images[:1]), *(answer(images[i : i + BATCH]) for i in range(0, len(images), BATCH))])


def _program(folder: Path, file: str) -> Answer:
    import torch

    net = torch.export.load(folder / file).module()
    return lambda images: _run(net, _normalised(folder, images))


def _session(folder: Path, file: str) -> Answer:
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / file, providers=["CPUExecutionProvider"])
    return lambda images: np.asarray(session.run(["logits"], {"images": _normalised(folder, images)})[0])


def _normalised(folder: Path, images: np.ndarray) -> np.ndarray:
    facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    mean, std = (np.array(facts[name], np.float32).reshape(1, -1, 1, 1) for name in ("mean", "std"))
    return (images.astype(np.float32) - mean) / std


def _module(folder: Path, name: str) -> Any:
    """A file of the folder, imported as the folder's own: there may be another `model`."""
    if str(folder.parent) not in sys.path:
        sys.path.insert(0, str(folder.parent))
    return importlib.import_module(f"{folder.name}.{name}")


def _run(net: Callable[[Any], Any], x: Any) -> np.ndarray:
    import torch

    with torch.no_grad():
        return net(torch.as_tensor(x)).numpy()


def main() -> None:
    sys.modules["alternas"] = None  # type: ignore[assignment] - an import of it now fails
    folder, images, work, *names = sys.argv[1:]
    for name in names:
        np.save(Path(work) / f"{name}.npy", logits(Path(folder), name, np.load(images)))


if __name__ == "__main__":
    main()

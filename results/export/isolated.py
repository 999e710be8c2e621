"""Loads files of an exported folder in a process without alternas, and writes their logits.

Run as a script: `python -P isolated.py FOLDER IMAGES.npy WORK FILE ...`. It writes WORK/FILE.npy for each main file of
a format: the logits of the first image alone, then of all. It imports nothing of alternas itself.
"""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 64  # more than a check on a run's sample has, which is one batch
Answer = Callable[[np.ndarray], np.ndarray]  # raw images (N, C, H, W) -> logits (N, K)


def package(file: Path) -> Answer:
    """Load model.py: its `load` and its own `preprocess`."""
    model = _module(file)
    net = model.load()
    return lambda images: _run(net, model.preprocess(images))


def timm(file: Path) -> Answer:
    """Load by timm's `create_model` after an import of timm_model.py; in the two halves that timm's nets have."""
    import timm as installed

    net: Any = installed.create_model(_module(file).NAME, pretrained=True).eval()
    return lambda images: _run(lambda x: net.forward_head(net.forward_features(x)), _normalised(file, images))


def torch_export(file: Path) -> Answer:
    """Load by torch.export.load."""
    import torch

    net = torch.export.load(file).module()
    return lambda images: _run(net, _normalised(file, images))


def onnxruntime(file: Path) -> Answer:
    """Load into onnxruntime on the CPU."""
    import onnxruntime as installed

    session = installed.InferenceSession(file, providers=["CPUExecutionProvider"])
    return lambda images: np.asarray(session.run(["logits"], {"images": _normalised(file, images)})[0])


def openvino(file: Path) -> Answer:
    """Load into OpenVINO on the CPU, in float32."""
    installed: Any = importlib.import_module("openvino")  # of an extra of its own
    net = installed.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda images: np.array(net(_normalised(file, images))["logits"])


def litert(file: Path) -> Answer:
    """Load into LiteRT's interpreter, which takes one image at a time."""
    net: Any = importlib.import_module("ai_edge_litert.interpreter").Interpreter(str(file))
    net.allocate_tensors()
    given, answer = net.get_input_details()[0]["index"], net.get_output_details()[0]["index"]

    def one(x_CHW: np.ndarray) -> np.ndarray:
        net.set_tensor(given, x_CHW[None])
        net.invoke()
        return net.get_tensor(answer)[0]

    return lambda images: np.stack([one(x_CHW) for x_CHW in _normalised(file, images)])


LOADERS = {  # by the name of the file, or by its ending
    "model.py": package,
    "timm_model.py": timm,
    ".pt2": torch_export,
    ".onnx": onnxruntime,
    ".xml": openvino,
    ".tflite": litert,
}


def logits(file: Path, images: np.ndarray) -> np.ndarray:
    """Logits of a file for raw images (N, C, H, W): of the first alone, then of all, in batches of `BATCH`."""
    load = LOADERS.get(file.name) or LOADERS[file.suffix]
    answer = load(file)
    return np.concatenate([answer(images[:1]), *(answer(images[i : i + BATCH]) for i in range(0, len(images), BATCH))])


def _normalised(file: Path, images: np.ndarray) -> np.ndarray:
    facts = json.loads(file.with_name("config.json").read_text(encoding="utf-8"))
    mean, std = (np.array(facts[name], np.float32).reshape(1, -1, 1, 1) for name in ("mean", "std"))
    return (images.astype(np.float32) - mean) / std


def _module(file: Path) -> Any:
    """A file of Python, imported as its folder's own: there may be another `model`."""
    folder = file.parent
    if str(folder.parent) not in sys.path:
        sys.path.insert(0, str(folder.parent))
    return importlib.import_module(f"{folder.name}.{file.stem}")


def _run(net: Callable[[Any], Any], x: Any) -> np.ndarray:
    import torch

    with torch.no_grad():
        return net(torch.as_tensor(x)).numpy()


def main() -> None:
    sys.modules["alternas"] = None  # type: ignore[assignment] - an import of it now fails
    folder, images, work, *files = sys.argv[1:]
    for file in files:
        np.save(Path(work) / f"{file}.npy", logits(Path(folder) / file, np.load(images)))


if __name__ == "__main__":
    main()

"""`reference`: one of timm's nets with the weights that a search trained; timm alone loads it. No choice of the user's:
it takes the place of the package and of timm's format where the net is timm's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .export_net import ExportNet, Format

USAGE = """\
```python
import timm
from safetensors.torch import load_file

net = timm.create_model(ARGUMENTS)
net.load_state_dict(load_file("weights.safetensors"))
net.eval()  # it takes (images - mean) / std, with mean and std of config.json
```
"""


def usage(facts: Mapping[str, Any]) -> str:
    """How timm loads it."""
    made = facts["timm"]
    arguments = [repr(made["name"]), *(f"{name}={value!r}" for name, value in made["arguments"].items())]
    return USAGE.replace("ARGUMENTS", ", ".join(arguments))


def write(net: ExportNet, folder: Path) -> dict[str, Any]:
    """Nothing: the weights that every export has are timm's own."""
    return {}


FORMAT = Format("timm", "weights.safetensors", write, usage, {})

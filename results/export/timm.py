"""`timm`: timm_model.py beside model.py; importing it makes the net one of timm's models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...archs import Genotype
from .export_net import ExportNet
from .formats import Format

FILE = "timm_model.py"
USAGE = """\
Importing `timm_model.py`, with this folder as the working folder or on the Python path, registers the net with timm \
as `NET_NAME`. Weights come from this folder, offline.

```python
import timm
import timm_model
from timm.data import create_transform, resolve_model_data_config

net = timm.create_model("NET_NAME", pretrained=True).eval()
transform = create_transform(**resolve_model_data_config(net))  # for pictures
tuned = timm.create_model("NET_NAME", pretrained=True, num_classes=5)  # a new head
```

`reset_classifier`, `get_classifier`, `forward_features`, `forward_head`, `num_features` and `group_matcher` are there\
NET_FEATURES
"""
FEATURES = """\
; so are maps of the stages for detection and segmentation:

```python
import timm
import timm_model

trunk = timm.create_model("NET_NAME", pretrained=True, features_only=True)
print(trunk.feature_info.channels(), trunk.feature_info.reduction())
```
"""


def usage(facts: Mapping[str, Any]) -> str:
    """How to load it: by the net's name, with maps of its stages if it has stages."""
    return USAGE.replace("NET_FEATURES", FEATURES if facts["stages"] else ".").replace("NET_NAME", facts["name"])


def write(net: ExportNet, folder: Path) -> dict[str, Any]:
    """Write timm_model.py; it needs the package's model.py beside it."""
    template = (Path(__file__).parent / "timm_template.txt").read_text(encoding="utf-8")
    (folder / FILE).write_text(template.replace("NET_NAME", net.facts["name"]), encoding="utf-8")
    genotype = net.network.genotype
    assert isinstance(genotype, Genotype), "of timm's nets no other timm model is written"
    return {"name": net.facts["name"], "features_only": bool(genotype.stages)}


FORMATS = {"timm": Format("timm", FILE, write, usage, {FILE: "registers the net with timm"})}

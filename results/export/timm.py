"""`timm`: timm_model.py beside model.py; importing it makes the net one of timm's models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...archs import Genotype
from .export_net import ExportNet
from .formats import Format

FILE = "timm_model.py"


def write(net: ExportNet, folder: Path) -> dict[str, Any]:
    """Write timm_model.py; it needs the package's model.py beside it."""
    template = (Path(__file__).parent / "timm_template.txt").read_text(encoding="utf-8")
    (folder / FILE).write_text(template.replace("NET_NAME", net.facts["name"]), encoding="utf-8")
    genotype = net.network.genotype
    assert isinstance(genotype, Genotype), "of timm's nets no other timm model is written"
    return {"name": net.facts["name"], "features_only": bool(genotype.stages)}


FORMATS = {"timm": Format("timm", FILE, write, "timm.md", {FILE: "registers the net with timm"})}

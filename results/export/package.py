"""`package`: model.py, the net's code in one readable file that stands alone, with functions that load it.

`timm` is timm_model.py beside it.
"""

from pathlib import Path
from typing import Any

from ...archs import Genotype, Network
from ...archs.timm_network import AnyNetwork, TimmNetwork
from .export_net import ExportNet
from .source import source_of

ARRAYS = '''\
def classify(files: list[str]) -> int:
    """Refuse files: the net was trained on arrays, which `preprocess` takes."""
    print(f"{files[0]}: this net takes arrays of its data's own values, and reads no files", file=sys.stderr)
    return 2


'''


def write(net: ExportNet, file: Path) -> dict[str, Any]:
    """Write model.py."""
    network, here = net.network, Path(__file__).parent
    files = ("model_template.txt", "timm_template.txt")
    template, of_timm = ((here / name).read_text(encoding="utf-8") for name in files)
    pictures = bool(net.facts.get("pictures"))
    if not pictures:
        template = _without_pictures(template)
    source, sections = source_of(network, template.replace("NET_", "") + of_timm.replace("NET_", ""), pictures)
    parts = {
        "NET_NAME": net.facts["name"],
        "NET_LAYOUT": "\n".join(f"    {line}" for line in drawing(network)),
        "NET_SECTIONS": "\n".join(f"    {name:<10} {about}" for name, about in sections),
        "# SOURCES": source,
    }
    for mark, part in parts.items():
        template = template.replace(mark, part)
    file.write_text(template, encoding="utf-8")
    return {}


def write_timm(net: ExportNet, file: Path) -> dict[str, Any]:
    """Write timm_model.py; it needs the package's model.py beside it, and makes the net one of timm's models."""
    template = (Path(__file__).parent / "timm_template.txt").read_text(encoding="utf-8")
    file.write_text(template.replace("NET_NAME", net.facts["name"]), encoding="utf-8")
    genotype = net.network.genotype
    assert isinstance(genotype, Genotype), "of timm's nets no other timm model is written"
    return {"name": net.facts["name"], "features_only": bool(genotype.stages)}


def drawing(network: AnyNetwork) -> list[str]:
    """Lines that draw a net from the image to the head; for a net of timm its name."""
    if isinstance(network, Network):
        return layout(network.genotype, network.image_size)
    if isinstance(network, TimmNetwork):
        return [f"timm's {network.genotype.name}"]
    from .cut import cut_drawing  # timm takes seconds to import

    return cut_drawing(network)


def _without_pictures(template: str) -> str:
    """The template of a net that was trained on arrays, which opens no files."""
    for start, end, instead in (("def open_image", "def load", ""), ("def classify", "if __name__", ARRAYS)):
        before, _, rest = template.partition(start)
        template = before + instead + end + rest.partition(end)[2]
    left_out = "model.open_image", "python model.py", "import struct", "import zlib", "SHOWN = "
    lines = [line for line in template.splitlines() if not any(words in line for words in left_out)]
    return "\n".join(lines).replace("`open_image`, ", "") + "\n"


def layout(net: Genotype, image_size: tuple[int, int]) -> list[str]:
    """The net from the image to the head, a line a part: blocks, channels and map."""
    plan, lines = net.plan(image_size), []
    if net.stem.kind != "none":
        lines.append(f"stem     {net.stem.kind}, {_sides(net.stem.width, plan.stem_map)}")
    for number, blocks in enumerate(plan.stages, start=1):
        kinds = " ".join(block.kind for block in blocks)
        lines.append(f"stage {number}  {kinds}, {_sides(blocks[-1].c_out, blocks[-1].map_out)}")
    if net.encoder is not None and plan.grid is not None:
        spec, (rows, columns) = net.encoder, plan.grid
        about = f"{spec.depth} blocks of {spec.heads} heads, positions {spec.position}"
        lines.append(f"encoder  {about}, {spec.embed_dim} x {rows}x{columns} tokens")
    hidden = f", hidden layer of {net.head.hidden}" if net.head.hidden else ""
    return [*lines, f"head     {'class token' if net.head.pool == 'token' else 'average'}{hidden}"]


def _sides(channels: int, at: tuple[int, int]) -> str:
    return f"{channels} x {at[0]}x{at[1]}"

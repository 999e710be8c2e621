"""Which pretrained nets a search of them tries, and at which image sides: a ladder of timm's, or nets by their names.

The ladder is pretrained_nets.csv, which benchmarks/pretrained_nets.py chooses from timm's published results.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from ..archs.errors import InputError, did_you_mean, short_repr
from ..archs.own_net import OwnNet
from ..archs.timm_net import TIMM

PRETRAINED = "pretrained"  # name of the space on the command line
LADDER = Path(__file__).with_name("pretrained_nets.csv")
SIDES = (48, 64, 80, 96, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512)
MAX_SIDE = 1.25  # times a net's own side
FILE_ENDINGS = (".safetensors", ".pth", ".pt", ".bin")


@dataclass(frozen=True)
class PretrainedNet:
    """One of timm's nets with weights, or a trained one of our own."""

    name: str  # timm's, with the tag of the weights; of our own one its own
    side: int  # of the pictures that it was trained on, in pixels
    fixed: bool  # whether it takes no other side
    macs: int  # of one picture at that side
    params: int  # of the whole net
    top1: float | None  # published accuracy on ImageNet, a fraction; None if the ladder does not have the net
    licence: str  # of the weights, as timm says; "unknown" if it does not
    source: str  # where they are, on the Hugging Face hub
    own: OwnNet | None = None  # the net, if it is our own

    @property
    def family(self) -> str:
        """What nets of one kind share: the letters that the name begins with."""
        if self.own:
            return self.own.genotype.family
        return re.split(r"[_.\d]", self.name.removeprefix("tf_"), maxsplit=1)[0]

    @property
    def sides(self) -> tuple[int, ...]:
        """Image sides to try, rising: its own, and those up to a little above it where it takes others."""
        if self.fixed:
            return (self.side,)
        sides = sorted({self.side, *(side for side in SIDES if side <= MAX_SIDE * self.side)})
        return tuple(side for side in sides if not self.own or self.own.takes(side))

    def macs_at(self, side: int) -> int:
        """About its MACs at another side, which go with the number of pixels."""
        return round(self.macs * (side / self.side) ** 2)


@cache
def ladder() -> tuple[PretrainedNet, ...]:
    """The nets that are tried by default, the cheapest first."""
    with open(LADDER, encoding="utf-8", newline="") as file:
        return tuple(
            PretrainedNet(
                row["name"], int(row["side"]), row["fixed"] == "1", int(row["macs"]), int(row["params"]),
                float(row["top1"]), row["licence"], row["source"],
            )
            for row in csv.DictReader(file)
        )  # fmt: skip


def files_as_names(words: Sequence[str], weights_dir: str = "") -> tuple[tuple[str, ...], str]:
    """Files of timm's weights by the names of their nets among what a person lists, and the one folder of all."""
    names, folders = list[str](), {weights_dir} - {""}
    for word in words:
        path = Path(word)
        if path.suffix in FILE_ENDINGS and not path.is_file():
            raise InputError(f"nets: no such file of weights, got {short_repr(word)}")
        if is_own(word):
            names.append(word)
            continue
        if path.suffix in FILE_ENDINGS:
            folders.add(str(path.parent))
        names.append(path.stem if path.suffix in FILE_ENDINGS else word)
    if len({Path(folder).resolve() for folder in folders}) > 1:
        raise InputError(f"nets: files of weights must lie in one folder, got {', '.join(sorted(folders))}")
    return tuple(names), min(folders, default="")


def is_own(word: str) -> bool:
    """Whether a word names a net of our own: RUN:TRIAL, an exported folder, or a file that we have written.

    Raises InputError if a safetensors file is broken.
    """
    path = Path(word)
    if ":" in word and not path.exists():
        return not word.startswith(TIMM)
    if path.suffix != ".safetensors" or not path.is_file():
        return (path / "weights.safetensors").is_file()
    from ..archs.weights import describe  # torch takes seconds to import

    return (path.parent / "genotype.json").is_file() or describe(path) is not None


def find_nets(words: str = "") -> tuple[list[PretrainedNet], list[str]]:
    """The nets of timm that a person lists, and the words among them that name nets of our own, such as RUN:TRIAL.

    Words are names and patterns such as mobilenetv4* with commas between them; none is the ladder. A pattern with a dot
    is compared with names that have a tag. Without one it is compared with architectures, each of which has the
    ladder's weights, or else those that timm takes by default. InputError if one fits none of timm's nets that have
    weights.
    """
    if not words.strip():
        return list(ladder()), []
    found: dict[str, PretrainedNet] = {}
    others: list[str] = []
    for word in dict.fromkeys(part.strip() for part in words.split(",") if part.strip()):
        if is_own(word):
            others.append(word)
        else:
            found |= {net.name: net for net in _matching(word.removeprefix(TIMM))}
    return list(found.values()), others


def _matching(pattern: str) -> list[PretrainedNet]:
    known = {net.name: net for net in ladder()}
    if pattern in known:
        return [known[pattern]]
    of_ladder = {name.split(".")[0]: name for name in known}
    if pattern in of_ladder:
        return [known[of_ladder[pattern]]]
    from timm import get_pretrained_cfg, list_pretrained

    tagged = list_pretrained()
    if "." in pattern:
        names = [name for name in tagged if fnmatchcase(name, pattern)]
    else:
        archs = [arch for arch in dict.fromkeys(name.split(".")[0] for name in tagged) if fnmatchcase(arch, pattern)]
        names = [of_ladder.get(arch) or _default(arch, get_pretrained_cfg(arch)) for arch in archs]
    if not names:
        near = did_you_mean(pattern, [*of_ladder, *tagged])
        raise InputError(f"nets: no net of timm that has weights is called {short_repr(pattern)}{near}")
    return [known.get(name) or _counted(name) for name in names]


def _default(arch: str, config: object) -> str:
    tag = getattr(config, "tag", "")
    return f"{arch}.{tag}" if tag else arch


def _counted(name: str) -> PretrainedNet:
    """A net of timm that the ladder does not have."""
    from ..archs.timm import count_timm
    from ..archs.timm.models import config_of

    config = config_of(name)
    counts, (_, side, _) = count_timm(name, None, None, None)
    licence, source = config.license or "unknown", config.hf_hub_id or config.url or ""
    return PretrainedNet(
        name, side, bool(config.fixed_input_size), counts["macs"], counts["params"], None, licence, source
    )

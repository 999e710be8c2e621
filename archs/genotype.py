"""`Genotype`: a network as a value, free of torch, with a JSON round trip and a stable key.

One type describes ResNets, BiTs, ViTs, ResNet+ViT hybrids, AlterNets and everything between: a
stem, residual stages whose blocks may be attention blocks, an optional transformer encoder, a
head. It carries no image size and no class count; `build` and `static_cost` are given those.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from .blocks.spec import BLOCKS
from .errors import InputError, short_repr
from .json_files import check_fields, convert, parse_json
from .layout import ImageSize, Layout, layout
from .parts import GROUPS, PREACTIVATION, Encoder, Head, Part, Stem, Style
from .stage import Stage

FAMILIES = ("resnet", "alternet", "hybrid", "vit", "modern")
TIMM_FIELD = "timm"  # the one field in a record's genotype of a net of timm; see `timm_net`
OWN_FIELD = "own"  # instead of it where one of our own nets is cut; see `own_net`
MAX_STAGES = 64
MAX_BLOCKS = 1024  # three times ResNet-1001's; a module takes up to 170 kB beside its weights


@dataclass(frozen=True, repr=False)
class Genotype(Part):
    """One network; InputError, with stage, field, rule and values, if it breaks a rule that needs no image size."""

    stem: Stem
    stages: tuple[Stage, ...] = ()
    encoder: Encoder | None = None
    head: Head = field(default_factory=Head)
    style: Style = PREACTIVATION

    def __post_init__(self) -> None:
        check_fields(self, "genotype")
        if not self.stages and self.encoder is None:
            raise InputError("genotype: needs at least one stage or an encoder, got neither")
        if len(self.stages) > MAX_STAGES:
            raise InputError(f"genotype: at most {MAX_STAGES} stages, got {len(self.stages)}")
        for number, stage in enumerate(self.stages, start=1):
            stage.check(f"stage {number}")
        if self.depth > MAX_BLOCKS:
            raise InputError(f"genotype: at most {MAX_BLOCKS} blocks in stages and encoder, got {self.depth}")
        if self.stem.kind == "none" and (self.stages or self.encoder is None):
            raise InputError("stem: kind 'none' needs an encoder and no stages, which take the stem's map")
        c_in = self.stem.width
        if self.style.norm == "group" and self.stem.kind in ("cifar", "imagenet") and c_in % GROUPS:
            raise InputError(f"stem: width must be a multiple of {GROUPS} under group norm, got {c_in}")
        for number, stage in enumerate(self.stages, start=1):
            stage.check_channels(f"stage {number}", c_in, self.style)
            c_in = stage.channels
        if self.head.pool == "token" and self.encoder is None:
            raise InputError("head: pool 'token' needs an encoder, got none")
        if self.encoder is not None and (self.head.norm != "style" or self.head.conv):
            raise InputError("head: norm and conv are of nets without an encoder, got one")

    def plan(self, image_size: ImageSize, in_chans: int = 3) -> Layout:
        """Lay the net out at a side, or (height, width), in px; InputError if a window or patch divides no map."""
        return layout(self.stem, self.stages, self.encoder, self.style, self.head, image_size, in_chans)

    def check(self, image_size: ImageSize) -> None:
        """Raise InputError if the net cannot be built at `image_size`."""
        self.plan(image_size)

    @property
    def depth(self) -> int:
        """Blocks of stages and encoder together."""
        return sum(stage.depth for stage in self.stages) + (self.encoder.depth if self.encoder else 0)

    @property
    def kinds(self) -> set[str]:
        """The kinds of blocks in its stages."""
        return {kind for stage in self.stages for kind in stage.kinds}

    @property
    def family(self) -> str:
        """ "vit" for an encoder on the image, "hybrid" for one on a conv map, "modern" for any modern
        block, "alternet" for any MSA block, else "resnet"."""
        if self.encoder is not None:
            return "vit" if self.stem.kind == "none" else "hybrid"
        if any(BLOCKS[kind].modern for kind in self.kinds):
            return "modern"
        return "alternet" if any(stage.places for stage in self.stages) else "resnet"

    def canonical(self) -> Genotype:
        """The one spelling of this net: unused fields at their defaults, MSA blocks by place."""
        stages = tuple(stage.canonical() for stage in self.stages)
        stem, style = self.canonical_start()
        encoder = self.encoder.canonical() if self.encoder else None
        return Genotype(stem, stages, encoder, self.head.canonical(), style)

    def canonical_start(self) -> tuple[Stem, Style]:
        """Stem and style of `canonical`; no other part depends on the rest of the net."""
        stem, style = self.stem.canonical(), self.style
        if stem.kind == "imagenet" and style == Style("post", "group"):
            stem = replace(stem, kind="bit")  # BiT's stem under another name
        if stem.kind in ("none", "bit", "patchify", "conv"):  # stems without a style
            if not any(BLOCKS[kind].ordered for kind in self.kinds):
                style = replace(style, order="pre")
            if not self.stages:
                style = PREACTIVATION
        return stem, style

    @cached_property
    def key(self) -> str:
        """12 hexadecimal digits, equal for two spellings of one net, stable between versions."""
        text = json.dumps(_without_defaults(self.canonical()), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers, as JSON has them."""
        return json.loads(json.dumps(asdict(self)))

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_dict(cls, data: Any) -> Genotype:
        """Rebuild from `to_dict`; absent fields take their default. InputError if one is unknown or breaks a rule."""
        if isinstance(data, Mapping) and TIMM_FIELD in data:
            raise InputError(f"genotype: timm's net {short_repr(data[TIMM_FIELD])} has none, and this needs one")
        if isinstance(data, Mapping) and OWN_FIELD in data:
            raise InputError("genotype: a net that is cut after a block has none, and this needs one")
        return convert(data, cls, "genotype")

    @classmethod
    def from_json(cls, text: str | bytes) -> Genotype:
        """Rebuild from `to_json`; InputError if the text is not JSON or not a genotype."""
        try:
            return cls.from_dict(parse_json(text))
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"genotype: not JSON ({error!s:.200})") from None


def _without_defaults(part: Any) -> Any:
    """The record as a dict without the fields that hold their default: what the key is made of."""
    if isinstance(part, tuple):
        return [_without_defaults(item) for item in part]
    if not isinstance(part, Part):
        return part
    values = {f.name: (getattr(part, f.name), f.default) for f in fields(part)}
    return {name: _without_defaults(value) for name, (value, default) in values.items() if value != default}

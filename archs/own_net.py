"""`OwnNet`: a net that alternas has trained, as a pretrained one whose cuts are searched. No torch."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from msgspec import Meta

from .errors import InputError
from .genotype import OWN_FIELD, Genotype
from .json_files import Amount, Number, check_fields, convert

Channels = Annotated[tuple[Number, ...], Meta(min_length=1, max_length=3)]


@dataclass(frozen=True)
class OwnNet:
    """A trained net of alternas.

    Attributes:
        name: for people: RUN:TRIAL, or that of a file or an exported folder.
        genotype: the net.
        side: of the images that it was trained on, in pixels.
        in_chans: their channels, 1 or 3.
        mean, std: by channel, that pictures of 0 to 1 are normalised with for it.
        sha256: first 12 digits of the digest of its weights.
        data: that it was trained on; "" if unknown.
    """

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    genotype: Genotype
    side: Annotated[int, Meta(ge=1, le=16384)]
    in_chans: Annotated[int, Meta(ge=1, le=3)]
    mean: Channels
    std: Annotated[tuple[Amount, ...], Meta(min_length=1, max_length=3)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
    data: str = ""

    def __post_init__(self) -> None:
        check_fields(self, "cut net")

    def __str__(self) -> str:
        return self.name

    @property
    def identity(self) -> str:
        """What makes it this net, whatever it is called: its weights, and how pictures are normalised for it."""
        return f"{self.sha256} {self.mean} {self.std}"

    def check(self, side: int) -> None:
        """Raise InputError if the net and its weights take no images of `side` x `side` pixels."""
        self.genotype.check(side)
        encoder = self.genotype.encoder
        if side != self.side and encoder is not None and encoder.position == "relative":
            raise InputError(f"{self.name}: its relative positions are for images of {self.side} px alone, got {side}")

    def takes(self, side: int) -> bool:
        """Whether `check` finds nothing."""
        try:
            self.check(side)
        except InputError:
            return False
        return True

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return json.loads(json.dumps(asdict(self)))


Trunk = str | OwnNet  # a net that is cut: timm's by its name there, with the tag of its weights, or one of our own


def own_net_from_dict(data: Any) -> OwnNet:
    """Rebuild the net under OWN_FIELD of a cut net's JSON; InputError if a field is missing or breaks a rule."""
    return convert(data[OWN_FIELD], OwnNet, "cut net")

"""`TimmNetwork`: a whole net of timm, trained as `Network` is; `build_net` builds any net, with timm where needed."""

from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor, nn

from .genotype import Genotype
from .layout import ImageSize, as_map
from .network import Network, build
from .timm_net import CutNet, Net, TimmNet

if TYPE_CHECKING:
    from .cut_network import CutNetwork

AnyNetwork: TypeAlias = "Network | TimmNetwork | CutNetwork"


class TimmNetwork(nn.Module):
    """x_BCHW -> logits (B, num_classes): a net of timm with fresh weights, and what `Network` says of itself.

    Its tensors have timm's names and no others, so that what is saved of it loads with timm's `load_state_dict`.
    InputError if timm does not know the net, or refuses the numbers.
    """

    def __init__(
        self, net: TimmNet, num_classes: int, image_size: ImageSize, in_chans: int, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        from .timm import create

        self.genotype, self.num_classes, self.in_chans = net, num_classes, in_chans
        self.image_size = as_map(image_size)
        self.model = create(net.name, False, num_classes, in_chans, self.image_size, drop_path)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.model(x_BCHW)

    def state_dict(self, *args: Any, **how: Any) -> Any:
        return self.model.state_dict(*args, **how)

    def load_state_dict(self, *args: Any, **how: Any) -> Any:
        return self.model.load_state_dict(*args, **how)


def build_net(
    net: Net, num_classes: int, image_size: ImageSize, in_chans: int = 3, dropout: float = 0.0, drop_path: float = 0.0
) -> AnyNetwork:
    """Build the net with fresh weights from torch's global random state; arguments as of `build`.

    `dropout`, which belongs to our transformer encoder, does not reach a net of timm; a cut net has its own image size.
    InputError if the net cannot be built so.
    """
    if isinstance(net, Genotype):
        return build(net, num_classes, image_size, in_chans, dropout, drop_path)
    if isinstance(net, CutNet):
        from .cut_network import CutNetwork

        return CutNetwork(net, num_classes, in_chans, drop_path=drop_path)
    return TimmNetwork(net, num_classes, image_size, in_chans, drop_path)

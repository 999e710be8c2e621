"""`Bank`: one tensor for each role, as large as the largest net needs, of which every net's weights are slices.

Nets are built as they are and run by `torch.func.functional_call` on their slices, so that autograd adds up the
gradients of all nets that share a tensor. A larger net makes the tensors grow (`reserve`), which have room
for all nets that they are trained for. A bank's file is safetensors, with the axes of its tensors and what it was
trained on; nothing is unpickled.
"""

import json
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...archs import Genotype, Network, build
from ...archs.blocks.axes import Axis
from ...archs.files import atomic_write
from ...results.runs.bank_progress import BANK_FORMAT, BANK_NAME, read_about
from ..training.optim import memory_format
from .roles import Role, roles_of

CACHED_NETS = 512  # modules without weights that are kept, for nets that are drawn again


class NetInput(NamedTuple):
    """Input and output sizes of a bank's nets."""

    num_classes: int  # width of the logits
    image_size: tuple[int, int]  # (height, width) in pixels
    in_chans: int  # channels of an image
    # dropout, drop_path: of the nets while they train; see `archs.build`
    dropout: float = 0.0
    drop_path: float = 0.0


class Skeleton(NamedTuple):
    """A net without weights, and the role of each of its parameters, by name."""

    net: Network
    roles: dict[str, Role]


@lru_cache(maxsize=CACHED_NETS)
def skeleton(genotype: Genotype, inputs: NetInput) -> Skeleton:
    """A net on the meta device, to be run on slices of a bank.

    BatchNorm uses the statistics of the batch: running ones would be those of all nets together.
    """
    with torch.device("meta"):
        net = build(genotype, *inputs)
    for module in net.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    return Skeleton(net, roles_of(net))


class BankSlice(NamedTuple):
    """Slice of the bank that a parameter of a net is."""

    tensor: nn.Parameter
    sizes: list[int]  # its shape with nested axes apart
    region: tuple[slice, ...]  # the slice of each of them
    shape: list[int]
    layout: torch.memory_format  # of the parameter in memory, as a net that is trained alone holds it


class Bank(nn.Module):
    """Shared weights of all nets of a space."""

    def __init__(self, inputs: NetInput, seed: int = 0) -> None:
        super().__init__()
        self.inputs, self.seed = inputs, seed
        self.axes: dict[str, tuple[Axis, ...]] = {}  # of each tensor, by the role's name
        self._places: dict[str, dict[str, BankSlice]] = {}  # by the net's key and the parameter's name

    def tensor(self, role: str) -> nn.Parameter:
        """The tensor of a role."""
        return self._parameters[role.replace(".", ":")]  # type: ignore[return-value]

    @torch.no_grad()
    def reserve(self, nets: Iterable[Genotype]) -> list[str]:
        """Make room for some nets. Returns the roles whose tensors are new or larger; what they held stays as it was.

        New values are drawn from those that the largest of the nets begins with, so that each kind of layer keeps its
        initialisation.
        """
        wanted, largest = dict(self.axes), dict[str, tuple[int, Genotype, str]]()
        for net in nets:
            for name, role in skeleton(net, self.inputs).roles.items():
                before = wanted.get(role.name, role.axes)
                pairs = zip(before, role.axes, strict=True)
                wanted[role.name] = tuple(Axis(tuple(map(max, a.sizes, b.sizes)), a.centred) for a, b in pairs)
                size = Axis(tuple(axis.length for axis in role.axes)).length
                if role.name not in largest or size > largest[role.name][0]:
                    largest[role.name] = (size, net, name)
        grown = [role for role, axes in wanted.items() if self.axes.get(role) != axes]
        fresh = {net: self._fresh(net) for net in {largest[role][1] for role in grown}}
        for role in grown:
            _, net, name = largest[role]
            self._extend(role, wanted[role], fresh[net][name])
        return grown

    def _fresh(self, net: Genotype) -> dict[str, Tensor]:
        """The weights that a net begins with when it is trained alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return dict(build(net, *self.inputs).named_parameters())

    def _extend(self, role: str, axes: tuple[Axis, ...], fresh: Tensor) -> None:
        shape = [axis.length for axis in axes]
        draw = torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {role} {shape}".encode()))
        values = fresh.flatten()[torch.randint(fresh.numel(), shape, generator=draw)]
        values = values.to(next(self.parameters(), values).device)
        if role in self.axes:
            old = self.tensor(role)
            region(values, self.axes[role], axes).copy_(old.view(_sizes(self.axes[role])))
        self.put(role, axes, values)

    def put(self, role: str, axes: tuple[Axis, ...], values: Tensor) -> None:
        """Set the tensor of a role. One that was there stays the same parameter, with another shape."""
        if role in self.axes:
            self.tensor(role).data = values
        else:
            self.register_parameter(role.replace(".", ":"), nn.Parameter(values))
        self.axes[role] = axes
        self._places.clear()

    def places(self, genotype: Genotype) -> dict[str, BankSlice]:
        """The slices that the parameters of a net are, by their names."""
        if (places := self._places.get(genotype.key)) is None:
            if len(self._places) >= CACHED_NETS:
                self._places.clear()
            roles = skeleton(genotype, self.inputs).roles
            places = self._places[genotype.key] = {name: self._place(genotype, role) for name, role in roles.items()}
        return places

    def _place(self, genotype: Genotype, role: Role) -> BankSlice:
        tensor, whole = self.tensor(role.name), self.axes[role.name]
        layout = memory_format(genotype, tensor.device) if tensor.dim() == 4 else torch.contiguous_format
        return BankSlice(tensor, _sizes(whole), region_of(role.axes, whole), [a.length for a in role.axes], layout)

    def weights(self, genotype: Genotype) -> dict[str, Tensor]:
        """A net's weights by name, as a net that is trained alone holds them; gradients go to the bank's tensors."""
        places = self.places(genotype)
        slices = _Slices.apply([*places.values()], *(place.tensor for place in places.values()))
        return dict(zip(places, slices, strict=True))

    def forward(self, genotype: Genotype, x_BCHW: Tensor) -> Tensor:
        """Logits (B, num_classes) of a net on slices of the bank; BatchNorm normalises by the batch."""
        x_BCHW = x_BCHW.contiguous(memory_format=memory_format(genotype, x_BCHW.device))
        net = skeleton(genotype, self.inputs).net
        if net.training != self.training:  # which goes through all of its modules
            net.train(self.training)
        return torch.func.functional_call(net, self.weights(genotype), (x_BCHW,), tie_weights=False)

    @torch.no_grad()
    def network(self, genotype: Genotype) -> Network:
        """A copy of a net. BatchNorm's running statistics are those of a fresh net."""
        weights = self.weights(genotype)
        device = next(iter(weights.values())).device
        with torch.device("meta"):
            net = build(genotype, *self.inputs)
        net = net.to_empty(device=device).to(memory_format=memory_format(genotype, device))  # pyright: ignore
        for name, parameter in net.named_parameters():
            parameter.copy_(weights[name])
        for module in net.modules():
            if isinstance(module, _BatchNorm):
                module.reset_running_stats()
        return net


class _Slices(torch.autograd.Function):
    """Copies slices of tensors, and adds up their gradients in the tensors.

    One function for a whole net: indexing axis by axis has an entry in autograd's graph for each axis of each tensor.
    """

    @staticmethod
    def forward(ctx: Any, places: list[BankSlice], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.places = places
        views = (t.view(p.sizes)[p.region].reshape(p.shape) for t, p in zip(tensors, places, strict=True))
        return tuple(view.clone(memory_format=p.layout) for view, p in zip(views, places, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, *(_spread(grad, place) for grad, place in zip(grads, ctx.places, strict=True))


def _spread(grad: Tensor, place: BankSlice) -> Tensor:
    """The gradient of a slice as one of the whole tensor: zero elsewhere."""
    if list(place.tensor.shape) == place.shape:
        return grad
    total = grad.new_zeros(place.tensor.shape)
    part = total.view(place.sizes)[place.region]
    part.copy_(grad.reshape(part.shape))
    return total


def region_of(axes: tuple[Axis, ...], whole: tuple[Axis, ...]) -> tuple[slice, ...]:
    """The slices that a part with `axes` takes of a tensor with axes `whole`; nested sizes are axes of their own."""
    slices = []
    for part, all_of in zip(axes, whole, strict=True):
        for size, most in zip(part.sizes, all_of.sizes, strict=True):
            start = (most - size) // 2 if part.centred else 0
            slices.append(slice(start, start + size))
    return tuple(slices)


def region(tensor: Tensor, axes: tuple[Axis, ...], whole: tuple[Axis, ...]) -> Tensor:
    """View of the part with `axes` of a tensor with axes `whole`."""
    return tensor.view(_sizes(whole))[region_of(axes, whole)]


def _sizes(axes: tuple[Axis, ...]) -> list[int]:
    return [size for axis in axes for size in axis.sizes]


def save_bank(bank: Bank, path: Path, facts: dict[str, Any]) -> None:
    """Write a bank, whole or not at all. `facts` say what it was trained on: space, data, steps."""
    tensors = {role: bank.tensor(role).detach().cpu().contiguous() for role in bank.axes}
    axes = {role: [[list(axis.sizes), axis.centred] for axis in axes] for role, axes in bank.axes.items()}
    about = {"format": BANK_FORMAT, "inputs": list(bank.inputs), "seed": bank.seed, "axes": axes, "facts": facts}
    content = to_bytes(tensors, {BANK_NAME: json.dumps(about, sort_keys=True)})
    atomic_write(path, lambda file: file.write(content))


def load_bank(path: Path, device: torch.device) -> Bank:
    """The bank of a file; InputError if the file is no bank of this format."""
    about = read_about(path)
    with safe_open(path, "pt") as file:
        tensors = {role: file.get_tensor(role) for role in about["axes"]}
    classes, image_size, in_chans, dropout, drop_path = about["inputs"]
    bank = Bank(NetInput(classes, tuple(image_size), in_chans, dropout, drop_path), about["seed"])
    for role, axes in about["axes"].items():
        bank.put(role, tuple(Axis(tuple(sizes), centred) for sizes, centred in axes), tensors[role].to(device))
    return bank

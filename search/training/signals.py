"""Cheap signals of an untrained net ("zero-cost proxies"): one batch, no training. More is meant to be better.

Each takes a net as it was born and a batch, and leaves both, and torch's random state, as they were. Where the
papers do not reach (attention, gates, norms other than BatchNorm), each says what it does. Parameters and
MACs, which every signal must beat, are `archs.static_cost`'s.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...archs import Genotype, build
from .bench import Batch, Bench
from .recipe import Recipe

BATCH = 64  # images; Abdelfattah et al. take 64, Mellor et al. 128
RIDGE = 1.0
JACOB_EPS = 1e-5  # as Mellor et al.
NORM_EPS = 1e-5  # BatchNorm's
Functions = dict[Callable[..., Any], Callable[..., Tensor]]  # what stands for which


def signals(
    genotype: Genotype, bench: Bench, seed: int, batch: int = BATCH, names: Sequence[str] = ()
) -> dict[str, float]:
    """`SIGNALS` of a net as training with this seed would begin: its first weights, its first batch, unaugmented.

    Those of these `names`, or all. torch's random state stays as it was. What a net is too deep for in float64
    comes out as inf or nan.

    Raises:
        InputError: if the net cannot be built for these images.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the weights of `torch.manual_seed`, but no GPU's state is touched
        data = bench.data
        net = build(genotype, len(data.classes), data.image_size, data.in_chans).to(bench.device)
        plain = Recipe("signals", 1, batch, "adamw", 1e-3, 0.0)
        first = next(iter(bench.batches(plain, seed, 0, 1)))
        return {name: SIGNALS[name](net, first) for name in names or SIGNALS}


def synflow(net: nn.Module, batch: Batch) -> float:
    """Log of the sum of |w dR/dw| over the weights of all convs and linear layers; `_flow` says what R is.

    Tanaka et al., "Pruning neural networks without any data by iteratively conserving synaptic flow", NeurIPS
    2020; as a proxy Abdelfattah et al., "Zero-cost proxies for lightweight NAS", ICLR 2021. As in the latter's
    code: BatchNorm is the identity; biases, norms and position embeddings have no share. R is then a sum over
    all paths of the products of their weights. To keep it one here:

    - LayerNorm, GroupNorm and weight standardisation are the identity too: behind a norm, R would not depend on
      the scale of what lies before it, and a standardised weight is no longer positive.
    - Attention is the mean of the values that a query may look at, softmax at equal logits, so that q and k
      have no share: without norms logits grow beyond measure, and softmax lets through one value or, in a
      tie, the rounding error.
    - tanh is the identity; a gate of squeeze-and-excitation stays, between a half and wide open.
    """
    net = _positive(net)
    _flow(net, batch, LINEAR)
    total = sum(_saliency(layer) for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear))
    return math.log(total) if total > 0 else -math.inf


def dss(net: nn.Module, batch: Batch) -> float:
    """log(1 + DSS), DSS = synaptic diversity of attention + synaptic saliency of MLPs; 0 for a net of neither.

    Zhou et al., "Training-free Transformer Architecture Search", CVPR 2022 (TF-TAS). Diversity: over the linear
    layers of attention, as in their code one for q, k and v together and one for the output, the nuclear norm
    of dR/dW times that of W. Saliency: the sum of |w dR/dw| over both layers of each MLP, those of ConvNeXt
    blocks included. `_flow` says what R is.

    LayerNorm and softmax stay, as in their code, and so does GroupNorm. BatchNorm, which their nets have not,
    and weight standardisation divide by the root mean square of a channel and subtract nothing (`_scaled`). Were
    they the identity, as in synflow, logits would grow until a change of the image by 1e-12 moves a gradient by
    50 orders (AlterNet-50); with means from images, ReLU passes all channels of |weights| or none. tanh is the
    identity. Different too: float64, and no share for the patch embedding and the head, which are in their code
    but not in their formula.
    """
    net = _positive(net)
    _flow(net, batch, {F.batch_norm: _scaled, torch.tanh: _same})
    diversity = sum(_diversity(layer) for layer in layers_of(net, "attn"))
    return math.log1p(diversity + sum(_saliency(layer) for layer in layers_of(net, "mlp")))


def grad_norm(net: nn.Module, batch: Batch) -> float:
    """Euclidean norm of the gradient of the mean cross-entropy over all parameters, BatchNorm as in training.

    Abdelfattah et al., ICLR 2021, as the paper says it; their code adds up the norms of the single layers,
    weights of convs and linear layers only.
    """
    net, (x_BCHW, y_B) = _copied(net).train(), batch
    F.cross_entropy(net(x_BCHW), y_B).backward()
    grads = [p.grad.double() for p in net.parameters() if p.grad is not None]
    return torch.stack([torch.linalg.vector_norm(grad) for grad in grads]).norm().item()


def naswot(net: nn.Module, batch: Batch) -> float:
    """Log-determinant of the kernel of the images' binary codes, BatchNorm as in training.

    Mellor et al., "Neural architecture search without training", ICML 2021: entry (i, j) is the number of units
    whose inputs have the same side of 0 for images i and j, added up over all activations. A unit here is that of a
    ReLU or, the same sign taken, of a GELU; those in gates and the head's tanh are left out. The identity is
    added: images of one code leave a finite value, and one that is never below 0. It changes little else: the
    eigenvalues of nets of space bench are 600 and more.
    """
    net = _copied(net).train()
    with torch.no_grad(), Codes() as codes:
        net(batch[0])
    kernel_BB = codes.kernel_BB + RIDGE * torch.eye(len(batch[0]), dtype=torch.float64, device=batch[0].device)
    return torch.linalg.slogdet(kernel_BB).logabsdet.item()


def jacob_cov(net: nn.Module, batch: Batch) -> float:
    """How little the images' Jacobians (of the sum of logits, by pixel) resemble each other.

    Mellor et al., arXiv:2006.04647v1, as in Abdelfattah's code: minus the sum over the eigenvalues v of their
    correlation matrix of log(v + 1e-5) + 1 / (v + 1e-5). More images than an image has values make eigenvalues
    of 0, each of which takes 1e5: the value then counts nothing else.
    """
    x_BCHW = batch[0].detach().clone().requires_grad_()
    logits_BK = _copied(net).train()(x_BCHW)
    (jacobian_BCHW,) = torch.autograd.grad(logits_BK.sum(), x_BCHW)
    value_B = torch.linalg.eigvalsh(torch.corrcoef(jacobian_BCHW.flatten(1).double())) + JACOB_EPS
    return -(value_B.log() + 1 / value_B).sum().item()


SIGNALS: dict[str, Callable[[nn.Module, Batch], float]] = {
    "synflow": synflow,
    "grad_norm": grad_norm,
    "naswot": naswot,
    "jacob_cov": jacob_cov,
    "dss": dss,
}


def layers_of(net: nn.Module, part: str) -> list[nn.Conv2d | nn.Linear]:
    """Convs and linear layers in all modules called `part`: "attn" or "mlp", as every block calls them."""
    named = [(name.split("."), module) for name, module in net.named_modules()]
    return [module for path, module in named if part in path and isinstance(module, nn.Conv2d | nn.Linear)]


class Instead(TorchFunctionMode):
    """Within it, some functions of torch are others: nets call most of theirs as functions, not as modules."""

    def __init__(self, other: Functions) -> None:
        super().__init__()
        self.other = other

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.other:
            return self.other[func](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class Codes(TorchFunctionMode):
    """Within it, `kernel_BB` adds up in how many units of ReLU and GELU each two of B images agree."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel_BB = torch.zeros(())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (F.relu, F.gelu):
            side_BU = (args[0] > 0).flatten(1).float() * 2 - 1
            agree_BB = (side_BU @ side_BU.t() + side_BU.shape[1]) / 2  # exact: whole numbers below 2**24
            self.kernel_BB = self.kernel_BB.to(agree_BB.device) + agree_BB.double()
        return func(*args, **(kwargs or {}))


def _copied(net: nn.Module) -> nn.Module:
    """With every parameter to be learned, and no gradients: torch copies none."""
    return copy.deepcopy(net).requires_grad_()


@torch.no_grad()
def _positive(net: nn.Module) -> nn.Module:
    """A copy in float64 with the absolute values of all parameters."""
    net = _copied(net).double()
    for parameter in net.parameters():
        parameter.abs_()
    return net


def _flow(net: nn.Module, batch: Batch, other: Functions) -> None:
    """Leave the gradients of R in the net: the sum of its logits for one image of ones."""
    with Instead(other):
        net.eval()(torch.ones_like(batch[0][:1], dtype=torch.float64)).sum().backward()


def _saliency(layer: nn.Conv2d | nn.Linear) -> float:
    grad = layer.weight.grad
    return 0.0 if grad is None else (layer.weight.detach() * grad).abs().sum().item()


def _diversity(layer: nn.Conv2d | nn.Linear) -> float:
    norms = [torch.linalg.matrix_norm(w, "nuc") for w in (layer.weight.detach(), layer.weight.grad) if w is not None]
    return (norms[0] * norms[1]).item()


def _same(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return x


def _scaled(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Each channel, dimension 1, at a root mean square of 1; the factor is a constant to the gradient."""
    others = [i for i in range(x.ndim) if i != 1]
    return x / (x.detach().square().mean(others, keepdim=True) + NORM_EPS).sqrt()


def _mean(queries: Tensor, keys: Tensor, values_BNTD: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Attention with equal logits wherever the mask lets a query look at a key."""
    if attn_mask is None:
        return values_BNTD.mean(-2, keepdim=True).expand_as(values_BNTD)
    seen = attn_mask if attn_mask.dtype == torch.bool else attn_mask > -math.inf
    share = seen.to(values_BNTD.dtype)
    return share / share.sum(-1, keepdim=True) @ values_BNTD


LINEAR: Functions = {
    F.batch_norm: _same,  # weight standardisation calls it too
    F.layer_norm: _same,
    F.group_norm: _same,
    F.scaled_dot_product_attention: _mean,
    torch.tanh: _same,
}

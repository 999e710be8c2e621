"""Patch-embedding filters by PCA: principal components of the filters, and their shares of the variance.

Dosovitskiy et al., ICLR 2021, section 4.5 and figure 7: the filters of the layer that makes tokens of pixels, brought
to their principal components; the leading ones resemble a basis of low-frequency patterns within a patch.

D filters, C channels of the image, P x P pixels of a patch, R components.
"""

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs import Network
from ...archs.errors import InputError
from ..analysis_tools.findings import Finding
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult
from ..analysis_tools.output import grid_of_images

SHOWN = 28  # as many as the paper's figure 7
EXPLAINED = 0.9  # of the variance


def patch_filters(net: nn.Module) -> Tensor:
    """(D, C, P, P): the filters of a patchify stem, or of an encoder that takes the image itself."""
    parts: Any = net
    if isinstance(net, Network):
        stem = net.genotype.stem.kind
        if stem == "patchify":
            return parts.stem.weight.detach()
        if stem == "none" and net.encoder is not None and not len(net.stages):
            return net.encoder.proj.weight.detach()
    elif type(net).__name__ == "VisionTransformer":
        return parts.patch_embed.proj.weight.detach()
    raise InputError("filters: this net makes no patches of the image")


def components(filters_DCPP: Tensor) -> tuple[Tensor, Tensor]:
    """(R, C, P, P) principal components of length 1, and the share (R,) of the variance that each explains."""
    flat = filters_DCPP.flatten(1).double()
    _, s_R, v_RF = torch.linalg.svd(flat - flat.mean(0), full_matrices=False)
    return v_RF.unflatten(1, filters_DCPP.shape[1:]), s_R.square() / s_R.square().sum()


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """Principal components of the patch filters and their shares; no image is looked at."""
    filters = patch_filters(subject.net)
    parts, shares = (each.cpu().numpy() for each in components(filters))
    sums = shares.cumsum()
    rows = [{"component": i + 1, "share": float(shares[i]), "cumulative": float(sums[i])} for i in range(len(shares))]
    needed, of_noise = enough(shares), enough_of_noise(filters.shape)
    verdict = "fewer than noise" if needed < of_noise else "as many as noise"
    findings = [
        Finding(
            f"components with {EXPLAINED:.0%} of the variance", needed, verdict=verdict, n=len(shares), resolution=1
        ),
        Finding("the same of noise of this shape", of_noise, n=len(shares), resolution=1),
        Finding("share of the first component", float(shares[0])),
    ]

    def draw(figure: Figure) -> None:
        images = []
        for part_CPP in parts[:SHOWN]:
            image = part_CPP.transpose(1, 2, 0) if len(part_CPP) == 3 else part_CPP.mean(0)
            images.append((image - image.min()) / max(float(np.ptp(image)), 1e-12))
        grid_of_images(figure, images, [f"{share:.1%}" for share in shares[:SHOWN]], columns=7)

    title = f"Principal components of the patch filters of {subject.name}"
    return AnalysisResult(title, rows, findings, draw)


def enough(shares_R: np.ndarray) -> int:
    """Number of components that hold EXPLAINED of the variance."""
    return int((shares_R.cumsum() < EXPLAINED).sum()) + 1


def enough_of_noise(shape: torch.Size) -> int:
    """Components that one draw of Gaussian filters of this shape needs (the Marchenko-Pastur law)."""
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=tuple(shape)))
    return enough(components(noise)[1].numpy())

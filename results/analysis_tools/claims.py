"""The papers' claims about trained nets: each the difference of two findings, tested over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..analysis import (
    attention_distance,
    cka,
    fourier,
    frequency_noise,
    hessian,
    lesion,
    receptive_field,
    robustness,
    variance,
)
from ..analysis import skip_connections as skips
from ..analysis import token_localization as tokens
from ..ranking.stats import LEVEL, mean_ci
from .findings import UNDECIDED, Finding, judged
from .inputs import ACCURACY

Number = tuple[str, str, str]  # net, analysis, finding
Net = Mapping[str, Mapping[str, Finding]]  # analysis -> finding
WORDS = "holds", "does not hold here"


class Claim(NamedTuple):
    """A statement of a paper: that one number is larger than others; an empty side is 0."""

    name: str  # for tables
    says: str  # the statement
    source: str  # who says it, and where
    more: Number | None
    less: tuple[Number, ...] = ()

    def lead(self, nets: Mapping[str, Net]) -> tuple[float, str, float]:
        """By how much one number exceeds the others, in one seed: above 0 where the paper is right; unit, resolution.

        Raises:
            KeyError: if a number was not measured.
        """
        more = [_find(nets, number) for number in (self.more,) if number]
        less = [_find(nets, number) for number in self.less]
        value = max((value for value, _ in more), default=0.0) - max((value for value, _ in less), default=0.0)
        of = [finding for _, finding in (*more, *less)]
        return value, of[0].unit, max(finding.resolution for finding in of)


def _find(nets: Mapping[str, Net], number: Number) -> tuple[float, Finding]:
    net, analysis, name = number
    finding = nets.get(net, {}).get(analysis, {}).get(name)
    if finding is None or finding.value is None:
        raise KeyError(f"{name} of {net}: {finding.verdict if finding else 'the net has nothing of the kind'}")
    return finding.value, finding


def judge(claim: Claim, seeds: Sequence[Mapping[str, Net]], level: float = LEVEL) -> Finding:
    """A claim over seeds: `holds` if the whole t interval is above 0, `does not hold here` if it is below."""
    leads, why = [], "no seed"
    for nets in seeds:
        try:
            leads.append(claim.lead(nets))
        except KeyError as error:
            why = error.args[0]
    if not leads:
        return Finding(claim.name, verdict=f"not measured: {why}", over="seeds", n=0)
    resolution = max(step for _, _, step in leads)
    ci = mean_ci([value for value, _, _ in leads], resolution=resolution, level=level)
    found = judged(claim.name, ci, WORDS, unit=leads[0][1], over="seeds", resolution=resolution)
    return found if found.verdict else replace(found, verdict=UNDECIDED)


def multiplicity(seeds: Sequence[Mapping[str, Net]]) -> str:
    """A line on testing so many claims at once: how many are decided, and how many together at 95 % (Bonferroni)."""
    together = 1 - (1 - LEVEL) / len(CLAIMS)
    decided, strictly = (
        sum(judge(claim, seeds, level).verdict in WORDS for claim in CLAIMS) for level in (LEVEL, together)
    )
    return (
        f"{len(CLAIMS)} claims, each at {LEVEL:.0%}: about {(1 - LEVEL) * len(CLAIMS):.1g} would be decided by chance "
        f"alone. {decided} are decided, {strictly} of them at {together:.1%}, which is {LEVEL:.0%} for all together."
    )


def _than(more: str, less: str, analysis: str, name: str) -> tuple[Number, tuple[Number, ...]]:
    """A number of one net that is to exceed another net's."""
    return (more, analysis, name), ((less, analysis, name),)


PK, RAGHU = "Park & Kim", "Raghu et al."
RATIO = skips.RATIO
CLAIMS = (
    Claim("msa lowers variance", "MSAs of a ViT lower the variance of feature maps", f"{PK}, figure 9",
          None, (("vit", "variance", f"{variance.FACTOR}, msa"),)),
    Claim("msa lowers variance in AlterNet", "MSAs among conv blocks lower the variance of feature maps",
          f"{PK} on AlterNet", None, (("alternet", "variance", f"{variance.FACTOR}, msa"),)),
    Claim("conv raises variance", "Conv blocks of a CNN raise the variance of feature maps", f"{PK}, figure 9",
          ("cnn", "variance", f"{variance.FACTOR}, conv")),
    Claim("variance peaks at stage ends", "In a CNN variance is larger at a stage's end than before it",
          f"{PK}, figure 9", ("cnn", "variance", variance.STAGE_ENDS)),
    Claim("msa is low-pass", "MSAs of a ViT lower the highest frequency's share", f"{PK}, figures 2 and 8",
          None, (("vit", "fourier", f"{fourier.CHANGE}, msa"),)),
    Claim("conv is high-pass", "Conv blocks of a CNN raise the highest frequency's share", f"{PK}, figures 2 and 8",
          ("cnn", "fourier", f"{fourier.CHANGE}, conv")),
    Claim("low noise hurts ViT", "Low-frequency noise costs a ViT more than a CNN", f"{PK}, figure 2b",
          *_than("vit", "cnn", "noise", frequency_noise.LOWEST)),
    Claim("high noise hurts CNN", "High-frequency noise costs a CNN more than a ViT", f"{PK}, figure 2b",
          *_than("cnn", "vit", "noise", frequency_noise.HIGHEST)),
    Claim("gap has fewer negative eigenvalues", "Reading a ViT by averaging lessens negative Hessian eigenvalues",
          f"{PK} on GAP classifiers", *_than("vit", "vit_gap", "hessian", hessian.NEP)),
    Claim("vit begins less convex", "At the end of warm-up a ViT has more negative Hessian eigenvalues than a CNN",
          f"{PK} on Hessian spectra", *_than("vit_warmup", "cnn_warmup", "hessian", hessian.NEP)),
    Claim("msa flattens the loss", "The positive Hessian eigenvalues of a ViT are smaller than a CNN's",
          f"{PK} on Hessian spectra", *_than("cnn", "vit", "hessian", hessian.LOG_APE)),
    Claim("lost msa costs more", "In an AlterNet losing an MSA costs more than losing a conv", f"{PK}, lesion study",
          ("alternet", "lesion", f"{lesion.LOSS}, msa"), (("alternet", "lesion", f"{lesion.LOSS}, conv"),)),
    Claim("vit stands corruptions", "Common corruptions cost a ViT less than a CNN", f"{PK} on corruptions",
          *_than("cnn", "vit", "robustness", robustness.LOSS)),
    Claim("hybrid beats both", "An AlterNet is more accurate than a CNN and a ViT of about its MACs",
          f"{PK} on AlterNet", ("alternet", "skips", ACCURACY),
          (("cnn", "skips", ACCURACY), ("vit", "skips", ACCURACY))),
    Claim("vit is uniform", "The layers of a ViT resemble each other more than those of a CNN", f"{RAGHU}, figure 1",
          *_than("vit", "cnn", "cka", cka.ALIKE)),
    Claim("skips matter in ViT", "A trained ViT loses more without a skip than a CNN", f"{RAGHU} on skips",
          *_than("vit", "cnn", "skips", skips.LOSS)),
    Claim("class token kept first", "The class token's skip ratio is higher in the first half of a ViT",
          f"{RAGHU} on skips", ("vit", "skips", f"{RATIO}, class token")),
    Claim("other tokens kept last", "The other tokens' skip ratio is higher in the second half of a ViT",
          f"{RAGHU} on skips", None, (("vit", "skips", f"{RATIO}, other tokens"),)),
    Claim("first heads differ", "Heads of a ViT's first layer look both near and far, those of its last all far",
          f"{RAGHU}, figure 3", None, (("vit", "distance", attention_distance.CONVERGE),)),
    Claim("attention widens", "The attention distance of a ViT grows with depth", f"{RAGHU}, figure 3; ViT, figure 7",
          ("vit", "distance", attention_distance.WIDENS)),
    Claim("vit sees far at once", "Behind its first block a ViT draws more on pixels beyond next patches than a CNN",
          f"{RAGHU}, figure 6", *_than("vit", "cnn", "field", receptive_field.OUTSIDE)),
    Claim("gap forgets places", "A ViT read by averaging localises its tokens less than one with a class token",
          f"{RAGHU} on places", *_than("vit", "vit_gap", "tokens", tokens.OWN)),
)  # fmt: skip

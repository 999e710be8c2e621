"""AlterNets that differ in stem, width and the last stage: its MSA blocks, their heads, its depth.

alternas spaces ./my_space.py --image-size 8
alternas search ./my_space.py --trials 8
"""

from alternas.archs import Genotype, Stage, Stem

WIDTHS = (8, 12, 16)


class LastStage:
    """Two conv stages, then one whose MSA blocks stand at its end, every second block, as in the AlterNet paper."""

    def __init__(self, image_size):
        height, width = image_size  # in pixels; a patch must divide both
        self.stems = ("cifar", "patchify") if height % 2 == width % 2 == 0 else ("cifar",)

    def sample(self, chooser):
        stem = chooser.choose("stem", self.stems)
        width = chooser.choose("width", WIDTHS)
        depth = chooser.choose("depth3", (2, 3, 4))
        msa = min(chooser.choose("msa3", (0, 1, 2)), depth // 2)  # an MSA block needs a conv block before it
        heads = chooser.choose("heads3", (2, 4, 8))
        return net(stem, width, Stage("basic", depth, 4 * width, stride=2, msa=msa, heads=heads, head_dim=8))

    def baselines(self):  # plain ResNets, cheapest first; without this method, those of space `resnet`
        return tuple(net("cifar", width, Stage("basic", 4, 4 * width, stride=2)) for width in WIDTHS)


def net(stem, width, last):
    first, second = Stage("basic", 1, width), Stage("basic", 2, 2 * width, stride=2)
    return Genotype(Stem(stem, width, patch=2 if stem == "patchify" else 0), (first, second, last))

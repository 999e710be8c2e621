"""A small preset, from which tests cut spaces that can be enumerated."""

from alternas.spaces.presets import SpacePreset

TINY = SpacePreset(
    strides=(1,),
    free_stems=("cifar", "patchify2", "patchify4"),
    blocks=("basic",),
    widths=(4, 6, 8, 12, 16),
    depths=((1, 2), (1, 2, 3), (1, 2)),
    msa=((0, 1), (0, 1), (0, 1)),
    heads=((1, 2), (2, 4), (4, 8)),
    head_dim=8,
    windows=(2, 4, 0),
    embed_dims=(16, 32, 48),
    encoder_depths=(1, 2, 3),
    mlp_ratios=(1.0, 2.0, 4.0),
    patches=(2, 1),
    vit_patches=(4, 2, 1),
    encoder_head_dim=8,
    options=(),
    baselines=(("basic", 4, (1, 1, 1)), ("basic", 8, (1, 1, 1)), ("basic", 16, (2, 2, 2))),
)

"""The ladder of pretrained nets that a search of them tries by default, chosen from timm's published results.

    python benchmarks/pretrained_nets.py --table timm_results.parquet

The table has a row for each net of timm and image side: model, side, imagenet (top-1), gmacs, i7_ms (a CPU's time for a
picture), rtx5090_per_s (a card's pictures a second), as timm's results/ folder has them. Nets on the hub whose licence
allows commercial use, one set of weights an architecture. Hybrids of convolution and attention first, the cheapest and
the most accurate of each family; then whatever adds most area below the fronts of accuracy over the logarithms of the
three costs. MACs and parameters are counted here. Writes spaces/pretrained_nets.csv; with --tiny it chooses five nets
of made-up accuracy, and writes into the current folder.
"""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from machine import TINY, keep, options, sized

from alternas.archs.timm import count_timm
from alternas.archs.timm.models import config_of

COUNT = sized(42, 5)
MIN_GMACS, MAX_GMACS = 0.03, 5.2
HYBRIDS = (
    "mobilevit_*", "mobilevitv2_*", "efficientformer_*", "efficientformerv2_*", "levit_[0-9]*", "fastvit_*",
    "tiny_vit_*", "repvit_*", "coatnet_*", "coatnext_*", "vit_*_r[0-9_]*", "resnetv2_*bit*", "efficientvit_b*",
    "mobilenetv4_hybrid_*",
)  # fmt: skip
ALWAYS = ("mobilenetv4_conv_small_050", "efficientnet_lite0", "resnet18")  # which people know, or have in packages
LEFT_OUT = ("test_*", "ghostnetv3_*")  # toys; one whose MACs are those of a form that timm's weights are not in
NONCOMMERCIAL = ("cc-by-nc", "noncommercial", "amlr", "seer", "unknown", "gemma")
POINTS_PER_DOUBLING = 3.0  # of accuracy, that a side must be worth where an architecture has weights for several
COSTS = ("gmacs", "i7_ms", "ms_of_card")
COLUMNS = ("name", "side", "fixed", "macs", "params", "top1", "licence", "source")


def candidates(table: pd.DataFrame) -> pd.DataFrame:
    """Rows that may be chosen, with architecture, licence and source."""
    configs = [config_of(name) for name in table.model]
    about: dict[str, list[Any]] = {
        "own": [config.input_size[-1] for config in configs],
        "arch": [config.architecture for config in configs],
        "licence": [config.license or "unknown" for config in configs],
        "source": [config.hf_hub_id or "" for config in configs],
    }
    table = table.assign(**about, ms_of_card=1000 / table.rtx5090_per_s)
    free = ~table.licence.map(lambda licence: any(word in licence for word in NONCOMMERCIAL))
    usable = free & (table.source != "") & (table.side == table.own) & table.gmacs.between(MIN_GMACS, MAX_GMACS)
    usable &= ~table.model.map(lambda name: any(fnmatch(name, pattern) for pattern in LEFT_OUT))
    table = table[usable].assign(worth=lambda t: t.imagenet - POINTS_PER_DOUBLING * np.log2(t.side))
    return table.sort_values("worth", ascending=False).drop_duplicates("arch").reset_index(drop=True)


def chosen(table: pd.DataFrame) -> list[int]:
    """Rows of the ladder."""
    picked = [int(table.index[table.arch == arch][0]) for arch in ALWAYS if (table.arch == arch).any()]
    for pattern in HYBRIDS:
        family = table[table.arch.map(lambda arch, pattern=pattern: fnmatch(arch, pattern))]
        if len(family):
            picked += [int(family.gmacs.idxmin()), int(family.imagenet.idxmax())]
    picked = list(dict.fromkeys(picked))[:COUNT]
    while len(picked) < COUNT:
        volumes = [sum(area(table, [*picked, row], cost) for cost in COSTS) for row in table.index]
        picked.append(int(np.argmax(volumes)))
    return picked


def area(table: pd.DataFrame, rows: list[int], cost: str) -> float:
    """Area below the front of these nets over log10 of a cost, up to the most expensive of all."""
    known = table.loc[rows].dropna(subset=[cost]).sort_values(cost)
    reached = known.imagenet.cummax().to_numpy()
    edges = np.log10(np.append(known[cost].to_numpy(), table[cost].max()))
    return float((np.diff(edges) * reached).sum())


def made_up() -> pd.DataFrame:
    names = ("mobilenetv4_conv_small_050.e3000_r224_in1k", "levit_128s.fb_dist_in1k", "resnet18.a1_in1k",
             "mobilenetv3_small_100.lamb_in1k", "repvit_m0_9.dist_300e_in1k", "mobilevit_xxs.cvnets_in1k")  # fmt: skip
    sides = [config_of(name).input_size[-1] for name in names]
    numbers = np.linspace(1, 2, len(names))
    return pd.DataFrame({
        "model": names, "side": sides, "imagenet": 60 * numbers / 2, "gmacs": numbers, "i7_ms": numbers,
        "rtx5090_per_s": 1 / numbers,
    })  # fmt: skip


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--table", type=Path, required=not TINY)
    table = candidates(made_up() if TINY else pd.read_parquet(parser.parse_args().table))
    rows = []
    for at in chosen(table):
        row = table.loc[at]
        counts, _ = count_timm(row.model, None, None, None)
        cost = counts["macs"], counts["params"]
        fixed = int(config_of(row.model).fixed_input_size)
        rows.append((row.model, row.side, fixed, *cost, round(row.imagenet / 100, 5), row.licence, row.source))
    ladder = pd.DataFrame(sorted(rows, key=lambda row: row[3]), columns=list(COLUMNS))
    folder = Path() if TINY else Path(__file__).parents[1] / "spaces"
    ladder.to_csv(folder / "pretrained_nets.csv", index=False, lineterminator="\n")
    keep("pretrained_nets", {"nets": len(ladder), "names": list(ladder.name)})


if __name__ == "__main__":
    main()

from __future__ import annotations
import math, os, random
from .sampler_context import SamplerContext

DRAWS = 400

def first_nets(context: SamplerContext):
    draw = random.Random(f"{context.seed}/start")
    drawn = [context.features_of(genes) | {} if False else (genes, context.features_of(genes)) for genes in (context.random_genes(draw) for _ in range(DRAWS))]
    drawn = [(g, f) for g, f in drawn if f.is_feasible]
    logs = sorted(math.log(f.costs.objective) for _, f in drawn)
    top = logs[int(float(os.environ.get("K_TOP", 0.6)) * (len(logs)-1))]
    cheap = [(g, f) for g, f in drawn if math.log(f.costs.objective) <= top]
    seen, chosen, known = set(), [], []
    while True:
        new = [(g, f) for g, f in cheap if kinds(f.net) - seen]
        if not new or len(chosen) >= int(os.environ.get("K_FIRST", 12)):
            return chosen
        g, f = max(new, key=lambda x: min((abs(math.log(x[1].costs.objective) - k) for k in known), default=0))
        chosen.append(g); known.append(math.log(f.costs.objective)); seen |= kinds(f.net)

def kinds(net):
    return set(net.kinds) | ({"encoder"} if net.encoder is not None else set())

"""How alike each place of a net is to a second net, such as the same net trained on all data, or a larger one.

Raghu et al., NeurIPS 2021, section 7: what layers learn from part of the data, beside what they learn from all of them.
"""

from __future__ import annotations

from typing import Any

from .cka import check_same, cka_map
from .sites import residual_sites
from .subject import Subject


def alike(subject: Subject, other: Subject, batch: int = 256) -> list[dict[str, Any]]:
    """A row for each place of the residual stream: its CKA with the same place of the other net.

    Nets that do not have the same places have no same place: there it is the one that it is most like.

    Raises:
        InputError: if the nets do not take the same images, or there are below 4.
    """
    check_same(subject, other)
    sites, others = (residual_sites(one.net) for one in (subject, other))
    batches = (x_BCHW for x_BCHW, _ in subject.images.batches(batch))
    found = cka_map(subject.net, other.net, batches, sites, others)
    same = [site.name for site in sites] == [site.name for site in others]
    best = range(len(sites)) if same else found.nan_to_num(-1.0).argmax(1).tolist()
    return [
        {"place": site.name, "match": others[k].name, "cka": found[i, k].item()}
        for i, (site, k) in enumerate(zip(sites, best, strict=True))
    ]

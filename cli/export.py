"""Commands that hand nets out or describe them: export, cost, archs, spaces."""

from __future__ import annotations

from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

from ..archs.errors import InputError
from ..results.render.tables import short
from ..results.render.terminal import print_json, print_lines, print_listing
from .command import command
from .options import console_for, print_result, run_and_trial_of
from .values import Amount


@command()
def export(
    run: str,
    *,
    out: Path,
    trial: int | None = None,
    pick: str = "",
    formats: tuple[str, ...] = ("package",),
    as_json: bool = False,
) -> None:
    """Export the best net as a folder that needs no alternas: weights, model card, chosen formats."""
    from ..results.export.write import export_net, summary_lines
    from ..search.experiments.trained_nets import scoring_images

    folder, trial = run_and_trial_of(run, trial)
    if trial is not None and pick:
        raise InputError(
            f"export: a trial names a net and --pick chooses one: only one of them, got both {trial} and {pick!r}"
        )
    images_of = partial(scoring_images, console=console_for(as_json))
    facts = export_net(folder, out, trial, pick or "recommended", formats, images_of)
    if as_json:
        print_json(facts)
    else:
        print_lines(*summary_lines(facts, out))


@command()
def cost(
    arch: str,
    *,
    image_size: str = "",
    classes: int | None = None,
    channels: int | None = None,
    batch: int = 1,
    images: Amount | None = None,
    svg: Path | None = None,
    as_json: bool = False,
) -> None:
    """Count params, MACs and memory of a net, part by part; timm's nets too."""
    from ..results.render.describe_cost import cost_facts
    from ..results.render.describe_net import cost_svg

    if svg:
        cost_svg(arch, svg, image_size, classes, channels)
    facts, drawing = cost_facts(arch, image_size, classes, channels, batch, images)
    print_result(as_json, facts, lambda: drawing)


@command()
def archs(*, grammar: bool = False, as_json: bool = False) -> None:
    """List the zoo: named nets and their sources."""
    from ..archs import grammar as fields
    from ..archs.zoo import ZOO

    if grammar:
        return print_json(fields.grammar()) if as_json else print_lines(*fields.page().splitlines())
    rows = [{"name": name, "timm": entry.timm, "about": entry.about} for name, entry in ZOO.items()]
    print_listing(rows, as_json)


@command()
def spaces(space: str = "", *, image_size: tuple[int, int] | None = None, as_json: bool = False) -> None:
    """List the search spaces, how much their genes can say, and what the cheapest and the most expensive net cost."""
    from ..archs import static_cost
    from ..spaces import SPACES, ends, find, is_file, options_of

    usual = (32,) if is_file(space) else (8, 32, 224)
    rows = []
    for name in [space] if space else SPACES:
        for height, width in [image_size] if image_size else [(side, side) for side in usual]:
            at = find(name, (height, width))
            options = options_of(at)
            facts: dict[str, Any] = {"genes": len(options), "combinations": prod(map(len, options.values()))}
            cost = cache(lambda net, size=(height, width): static_cost(net, 10, size))
            for kind in ("macs", "params"):
                least, most = ends(at, lambda net, kind=kind, cost=cost: getattr(cost(net), kind))
                facts |= {f"least_{kind}": int(least), f"most_{kind}": int(most)}
            rows.append({"space": at.name, "image_size": f"{height}x{width}"} | facts)
    print_listing(rows if as_json else [_ranges(row) for row in rows], as_json)


def _ranges(row: dict[str, Any]) -> dict[str, Any]:
    ranges = {kind: f"{short(row[f'least_{kind}'])} to {short(row[f'most_{kind}'])}" for kind in ("macs", "params")}
    shown = {name: row[name] for name in ("space", "image_size", "genes")}
    return shown | {"combinations": short(row["combinations"]), "MACs": ranges["macs"], "params": ranges["params"]}

"""Commands that hand nets out or describe them: export, cost, archs, spaces."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from ..archs.errors import InputError
from ..results.export.formats import FORMATS
from ..results.render.tables import short
from ..results.render.terminal import print_json, print_lines, print_listing, print_text
from .options import Json, NetSize, Svg, argument, command, console_for, option


@command(10)
def export(
    run: Annotated[str, argument("Run name or folder; RUN:TRIAL selects one net.")],
    out: Annotated[Path, option("Folder to create.")],
    trial: Annotated[int | None, option("Trial to export instead of the best.")] = None,
    pick: Annotated[str, option("Which net of the front to export: accuracy (default), gain, or cheapest.")] = "",
    formats: Annotated[str, option(f"Export formats, separated by commas: {', '.join(FORMATS)}.")] = "package",
    as_json: Json = False,
) -> None:
    """Export the best net as a folder that needs no alternas: weights, model card, chosen formats."""
    from ..results.export.write import export_net, summary_lines
    from ..results.runs.weights_spec import parse_run_spec
    from ..search.experiments.scoring_images import scoring_images

    folder, named = parse_run_spec(run)
    if sum(value not in (None, "") for value in (trial, named, pick)) > 1:
        rule = "RUN:TRIAL and --trial name a net and --pick chooses one: only one of them"
        raise InputError(f"export: {rule}, got both {run if named is not None else trial} and {pick or trial!r}")
    images_of = partial(scoring_images, console=console_for(as_json))
    facts = export_net(
        folder, out, named if trial is None else trial, pick or "accuracy", formats.split(","), images_of
    )
    if as_json:
        print_json(facts)
    else:
        print_lines(*summary_lines(facts, out))


@command(11)
def cost(
    arch: Annotated[str, argument("Architecture: a zoo name, a genotype's JSON file, RUN:TRIAL, or timm:NAME.")],
    image_size: NetSize = "",
    classes: Annotated[int | None, option("Number of classes (default: the run's, timm's or 1000).")] = None,
    channels: Annotated[int | None, option("Number of image channels (default: the run's, timm's or 3).")] = None,
    batch: Annotated[int, option("Batch size, to estimate training memory.")] = 1,
    images: Annotated[str, option("Number of training images, such as 2.1G, to estimate training compute.")] = "",
    svg: Svg = None,
    as_json: Json = False,
) -> None:
    """Count params, MACs and memory of a net, part by part; timm's nets too."""
    from ..results.render.describe_net import cost_facts, cost_svg
    from ..search.config import amount

    total = amount("images", images) if images else None
    if svg:
        cost_svg(arch, svg, image_size, classes, channels)
    facts, drawing = cost_facts(arch, image_size, classes, channels, batch, total)
    if as_json:
        print_json(facts)
    else:
        print_text(drawing)


@command(12)
def archs(
    grammar: Annotated[
        bool, option("Print what nets are made of instead: each field and kind of block, as Markdown.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the zoo: named nets and their sources."""
    from ..archs import grammar as fields
    from ..archs.zoo import ZOO

    if grammar:
        return print_json(fields.grammar()) if as_json else print_lines(*fields.page().splitlines())
    rows = [{"name": name, "timm": entry.timm, "about": entry.about} for name, entry in ZOO.items()]
    print_listing(rows, as_json)


@command(13)
def spaces(
    space: Annotated[str, argument("Name of a space, or your own file to check (default: all).")] = "",
    image_size: Annotated[
        str, option("Image size in pixels: SIDE or HEIGHTxWIDTH (default: 8, 32 and 224; 32 for a file).")
    ] = "",
    as_json: Json = False,
) -> None:
    """List the search spaces, how many distinct nets they hold, and what the cheapest and the dearest cost."""
    from ..archs import static_cost
    from ..results.render.describe_net import parse_size
    from ..spaces import SPACES, ends, find, is_file, options_of

    usual = (32,) if is_file(space) else (8, 32, 224)
    rows = []
    for name in [space] if space else SPACES:
        for height, width in [parse_size(image_size)] if image_size else [(side, side) for side in usual]:
            at = find(name, (height, width))
            facts: dict[str, Any] = {"genes": len(options_of(at)), "nets": at.size()}
            cost = cache(lambda net, size=(height, width): static_cost(net, 10, size))
            for kind in ("macs", "params"):
                least, most = ends(at, lambda net, kind=kind, cost=cost: getattr(cost(net), kind))
                facts |= {f"least_{kind}": int(least), f"most_{kind}": int(most)}
            rows.append({"space": at.name, "image_size": f"{height}x{width}"} | facts)
    print_listing(rows if as_json else [_ranges(row) for row in rows], as_json)


def _ranges(row: dict[str, Any]) -> dict[str, Any]:
    """The row with short numbers, and each range in one column."""
    names = ("space", "image_size", "genes", "nets")
    shown = {name: row[name] for name in names}
    if row["nets"] and row["nets"] >= 10**6:
        shown["nets"] = f"{row['nets']:.3g}"
    ranges = {kind: f"{short(row[f'least_{kind}'])} to {short(row[f'most_{kind}'])}" for kind in ("macs", "params")}
    return shown | {"MACs": ranges["macs"], "params": ranges["params"]}

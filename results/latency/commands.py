"""The command `latency`: parse, measure, print."""

from __future__ import annotations

from typing import Annotated

import typer

commands = typer.Typer()


@commands.command()
def latency(
    target: Annotated[
        str, typer.Argument(help="A run, or a net: a zoo name, a genotype's JSON file, RUN:TRIAL, or timm:NAME.")
    ],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    batch: Annotated[str, typer.Option(help="Images at once; several with commas between.")] = "1",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16; several with commas between.")] = "float32",
    compile_nets: Annotated[bool, typer.Option("--compile", help="Compile each net with torch.compile.")] = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Run each net in onnxruntime.")] = False,
    threads: Annotated[int, typer.Option(help="Threads of the CPU.")] = 1,
    top: Annotated[int, typer.Option(help="So many nets of a run, the best ranked first; 0 means all.")] = 0,
    image_size: Annotated[
        str, typer.Option(help="Side in pixels or HEIGHTxWIDTH; without it, the run's, timm's or 224.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON to stdout instead of a table.")] = False,
) -> None:
    """How long nets take on this machine; of a run it is kept, for `front --objectives accuracy,latency_ms`."""
    import logging

    from ..console import Console, plain

    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns where there is no GPU
    from ..say import print_json, print_text
    from .nets import measured, subjects_of
    from .setting import settings_of
    from .table import agreement, drawn, rows_of

    settings = settings_of(device, batch, dtype, (compile_nets, onnx), threads)
    subjects = subjects_of(target, image_size, top)
    with Console(stderr=True).status("measuring") as status:
        pairs = list(measured(subjects, settings, lambda name: status.update(plain(f"measuring {name}"))))
    groups = [(setting, [pair for pair in pairs if pair[1].setting == setting]) for setting in settings]
    if as_json:
        found = [rows_of(group) for _, group in groups]
        print_json([{"rows": rows, "rank_correlation_macs": agreement(rows)} for rows in found])
        return
    for setting, group in groups:
        print_text(drawn(rows_of(group), setting))

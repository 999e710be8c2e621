"""Tables of nets that we trained, in table.parquet: every net of space `bench`, with several seeds.

benchmarks/table.py makes the file from runs of `alternas search`, in the columns of `read_table`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...spaces import FixedChooser, get
from .benchmark_table import TabularBenchmark
from .table_file import GENE, read_table
from .table_space import TableSpace

FILE = Path(__file__).with_name("table.parquet")
IMAGE_SIZE, CLASSES, IN_CHANS = 16, 10, 1
CHANCE = 1 / CLASSES


def cue() -> TabularBenchmark:
    """The 424 nets of space `bench` on `cue`: 625 steps, three seeds."""
    return trained("cue")


def clutter() -> TabularBenchmark:
    """160 of them on `clutter`."""
    return trained("clutter")


def trained(data: str, file: Path = FILE) -> TabularBenchmark:
    """A data set of the file, searched as users search: over the genotypes of space `bench`."""
    table, space = read_table(file, data, floor=CHANCE), get("bench", IMAGE_SIZE)
    assert isinstance(table.space, TableSpace)
    entries = {}
    for row in table.space.rows:
        genes = {name.removeprefix(GENE): value for name, value in table.space.genes(row).items()}
        entries[space.sample(FixedChooser(genes)).key] = table.entries[table.space.net(row).key]
    return replace(table, name=data, space=space, entries=entries)

"""Tables of nets that we trained, in table.parquet: every net of space `bench`, with several seeds.

benchmarks/table.py makes the file from runs of `alternas search`, in the columns of `read_table`.
"""

from dataclasses import replace
from pathlib import Path

from ...archs import Genotype
from ...spaces import Chooser, FixedChooser, Genes, Space, get, members
from ...spaces.base import Option
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


def cue_long() -> TabularBenchmark:
    """A hundred of them on `cue`, for four times as long: 2,500 steps, two seeds."""
    return trained("cue-long")


def cue_short(file: Path = FILE) -> TabularBenchmark:
    """The same hundred for 625 steps, judged by what they become in 2,500: what a short budget's front is worth."""
    short, long = trained("cue", file), trained("cue-long", file)
    entries = {key: short.entries[key] for key in long.entries}
    return replace(short, name="cue-short", entries=entries, judge=long)


def hybrids() -> TabularBenchmark:
    """The nets of family hybrid on `cue`: 144 of six genes."""
    others = dict.fromkeys(("window1", "msa1_1", "msa1_2", "msa2_2", "msa2_3"), 0)
    table, space = cue(), FixedGenes(get("bench", IMAGE_SIZE), {"family": "hybrid", **others})
    keys = {net.key for _, net in members(space)} & table.entries.keys()
    return replace(table, name="hybrids", space=space, entries={key: table.entries[key] for key in keys})


def alike() -> TabularBenchmark:
    """The nets whose costs on `cue` are within a factor of 1.5."""
    table = cue()
    entries = {key: entry for key, entry in table.entries.items() if 0.8e6 <= entry.costs["macs"] <= 1.2e6}
    return replace(table, name="alike", entries=entries)


class FixedGenes:
    """A space with some of its genes fixed: the others are drawn."""

    def __init__(self, space: Space, genes: Genes) -> None:
        self._space, self._fixed, self.name = space, genes, f"{space.name} with {len(genes)} genes fixed"

    def sample(self, chooser: Chooser) -> Genotype:
        return self._space.sample(_Fixing(chooser, self._fixed))

    def baselines(self) -> tuple[Genotype, ...]:
        return ()


class _Fixing:
    def __init__(self, chooser: Chooser, fixed: Genes) -> None:
        self._chooser, self._fixed = chooser, FixedChooser(fixed)
        self._names = fixed.keys()

    def choose(self, name: str, options: tuple[Option, ...]) -> Option:
        return (self._fixed if name in self._names else self._chooser).choose(name, options)


def trained(data: str, file: Path = FILE) -> TabularBenchmark:
    """A data set of the file, searched as users search: over the genotypes of space `bench`."""
    table, space = read_table(file, data, floor=CHANCE), get("bench", IMAGE_SIZE)
    assert isinstance(table.space, TableSpace)
    entries = {}
    for row in table.space.rows:
        genes = {name.removeprefix(GENE): value for name, value in table.space.genes(row).items()}
        entries[space.sample(FixedChooser(genes)).key] = table.entries[table.space.net(row).key]
    return replace(table, name=data, space=space, entries=entries)

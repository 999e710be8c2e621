"""Moves: the genes one step away from those of a net. What evolution does to a parent, and what a neighbour is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .base import Gene, Genes

SHIFTED = "msa"  # genes of this name and a stage's number, or a place's, hold blocks that may move to another


def neighbors(genes: Genes, options: Mapping[str, tuple[Gene, ...]]) -> list[Genes]:
    """All genes one move away, in a fixed order.

    A gene of numbers takes the option before or behind its own (options stand in order): one MSA block more
    or less at a stage's end, one block deeper, the next width. A gene of names (family, block, pool) takes any
    other. And one MSA block leaves a stage's end for another's; where each place has a gene, it leaves one
    place for another, in its stage or elsewhere. A move may change a gene that the net does not use: then it
    gives the same net.
    """
    return [genes | change for change in mutations(genes, options)]


def mutations(genes: Genes, options: Mapping[str, tuple[Gene, ...]]) -> list[Genes]:
    """Of each of the `moves`, in their order, the genes that it changes."""
    return [*_steps(genes, options), *_shifts(genes, options)]


def _steps(genes: Genes, options: Mapping[str, tuple[Gene, ...]]) -> Iterator[Genes]:
    for name, choices in options.items():
        at = choices.index(genes[name])
        named = isinstance(choices[0], str)
        for to in range(len(choices)) if named else (at - 1, at + 1):
            if to != at and 0 <= to < len(choices):
                yield {name: choices[to]}


def _shifts(genes: Genes, options: Mapping[str, tuple[Gene, ...]]) -> Iterator[Genes]:
    stages = [name for name in options if name.startswith(SHIFTED)]
    at = {name: options[name].index(genes[name]) for name in stages}
    for source in stages:
        for to in stages:
            if source != to and at[source] > 0 and at[to] + 1 < len(options[to]):
                yield {source: options[source][at[source] - 1], to: options[to][at[to] + 1]}

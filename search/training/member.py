"""`Member`: a worker's place among those that do one job together, and its share of a batch. No torch."""

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Member:
    """A worker's place among those that do one job together."""

    rank: int = 0  # of the worker, from 0; the first one reports progress and writes the files
    world: int = 1  # how many workers have the job
    rendezvous: str = ""  # file where they meet, or of a cluster tcp://HOST:PORT of the first; a new one each time
    local: bool = True  # whether all of them are on one machine

    def places(self, images: int) -> tuple[int, ...]:
        """Its images of a batch of so many, in the batch's order.

        An image has the owner of the one that is as far from the batch's other end, which it is mixed with.
        """
        return _places(self.rank, self.world, images)


@cache
def _places(rank: int, world: int, images: int) -> tuple[int, ...]:
    return tuple(i for i in range(images) if min(i, images - 1 - i) % world == rank)


ALONE = Member()

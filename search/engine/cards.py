"""A worker's share of a card, and cards that have failed: what takes memory there, and whether a card still computes.

Only functions that need torch import it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import defaultdict

from ..training.job import JobId

CONTEXT_BYTES = 512 * 2**20  # of a card, that CUDA and its libraries take in each process beside torch's memory
MAX_DEATHS = 3  # of workers on one card, each with another job: then it is the card and not a net
log = logging.getLogger("alternas")


class BrokenCardError(Exception):
    """The card no longer computes for this process, which must end: all of its later nets would fail.

    Attributes:
        card: its name.
        why: the error that broke it, in a line.
    """

    def __init__(self, card: str, why: str) -> None:
        super().__init__(card, why)
        self.card, self.why = card, why


class BadCards:
    """Counts the jobs on which workers died by card."""

    def __init__(self) -> None:
        self._deaths = defaultdict[str, set[JobId | str]](set)

    def note(self, error: BrokenCardError, job: JobId | str) -> None:
        """Note a death on a job, or as a worker started; say so of a card that is left out from now on."""
        deaths = self._deaths[error.card]
        deaths.add(job)
        if len(deaths) == MAX_DEATHS:
            log.warning("%s is left out: %d workers died there, the last of: %s", error.card, MAX_DEATHS, error.why)

    def __contains__(self, card: str) -> bool:
        return len(self._deaths[card]) >= MAX_DEATHS


def card_name() -> str:
    """This process's card, as the machine counts them."""
    return f"GPU {os.environ.get('CUDA_VISIBLE_DEVICES', '0')} of {socket.gethostname()}"


def use_share(share: float) -> None:
    """Let this process have that share of its card's memory, what CUDA takes beside torch included."""
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    beside = CONTEXT_BYTES / total if share < 1 else 0.0
    torch.cuda.set_per_process_memory_fraction(max(share / 2, share - beside))


def check_card(error: Exception) -> None:
    """Raise BrokenCardError if the card no longer computes, of which `error` may be a sign; out of memory is none.

    An assertion on the device, an access to where nothing is, a fault of its memory: CUDA then fails every later call.
    """
    import torch

    from ..training.optim import out_of_memory

    if out_of_memory(error):
        return
    try:
        torch.zeros(1, device="cuda").add_(1)
        torch.cuda.synchronize()
    except RuntimeError as broken:
        if not out_of_memory(broken):
            why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise BrokenCardError(card_name(), why) from None

"""`Status`: how a job or a trial ended. `Weights`: how a net came by its weights."""

from enum import StrEnum


class Status(StrEnum):
    """How a job or a trial ended; JSON holds the text."""

    OK = "ok"  # trained to its full budget, or measured
    PRUNED = "pruned"  # paused at a rung, and never promoted
    ERROR = "error"
    NAN = "nan"  # a loss or a score that is not finite
    OOM = "oom"
    TIMEOUT = "timeout"
    LOST = "lost"  # its worker died, or could not reach the driver's files
    INFEASIBLE = "infeasible"  # over a limit, more than the compute that is left, or a device does not run it
    DUPLICATE = "duplicate"
    # of jobs alone, and no fault of the net
    FULL = "full"  # the disk is
    UNREACHABLE = "unreachable"  # the device that measures it is
    STALE = "stale"  # of an earlier driver, inside Ray Tune
    REWIND = "rewind"  # the state that a bank's training was to go on from is broken or gone


FAILED = (Status.ERROR, Status.NAN, Status.OOM, Status.TIMEOUT, Status.LOST)
UNTRAINED = (Status.INFEASIBLE, Status.DUPLICATE)  # they use up no trial
RECORDED = (Status.OK, Status.PRUNED, *FAILED, *UNTRAINED)


class Weights(StrEnum):
    """How a net came by its weights; JSON holds the text."""

    ALONE = "alone"  # trained from fresh ones
    INHERITED = "inherited"  # trained from those of another net
    SHARED = "shared"  # slices of a supernet's bank
    FINETUNED = "finetuned"  # trained on from its own, of a net or a cut, once all others of a search have ended
    FROZEN = "frozen"  # of a cut of a pretrained net, as they were

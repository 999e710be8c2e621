"""What a search says: before its first training what it will do, and at its end how it went."""

import math
import shlex
import time

import numpy as np
from rich.console import Console
from threadpoolctl import ThreadpoolController

from ..archs import OperationError
from ..archs.candidate import tuned_values
from ..archs.cost import FORWARD_FACTOR
from ..results.render.tables import duration, short
from ..results.runs.status import FAILED, UNTRAINED
from ..spaces.pretrained import ladder
from .default import UNLIMITED
from .fitted_recipe import at_outset, fitted_to_few
from .probe.prepare import LARGEST_SIDE
from .strategies.buildup import BuildUp, steps_table
from .supernet.draws import TRAININGS_A_KIND, trainings_needed
from .trials.compute import BESIDE_SHARE
from .trials.search_trials import SearchTrials
from .trials.shared_weights import SharedWeights
from .trials.trial import BUDGET_SHARE, Work

STEP_FLOPS = 5e8  # that a step takes as long as, beside its own: 15 ms where a core does 36 G a second
UP_TO = 100e6  # MACs of the nets that `probe_hint` speaks of
OF_MATMUL = 0.35  # of the speed of a product of matrices, at which a core runs such nets: 36 of 103 GFLOP/s, where
# benchmarks/results/pretrained_probe.json was measured
SIDE, SECONDS = 512, 0.05  # of the matrices; that they are multiplied for


def conclude(search: SearchTrials, console: Console) -> None:
    """Say how a search ended; OperationError if all that was trained has failed."""
    settings, started = search.context.settings, search.started
    if settings.run.budget.train_flops < math.inf and search.compute.is_spent:
        console.print(f"all {short(settings.run.budget.train_flops)} FLOPs are used: {started} trials started")
    elif search.patience.is_over and started < settings.trials:
        console.print(str(search.patience), highlight=False, soft_wrap=True)
    elif search.exhausted and settings.trials < UNLIMITED:
        limits = " within the limits" if settings.limits else ""
        why = "search strategy finished" if search.proposer.planned else f"no other net of the space was found{limits}"
        console.print(f"{why}: {started} of {settings.trials} nets, beside the baselines")
    trained = [r for r in search.store.records if r.status not in UNTRAINED]
    if all(r.status in FAILED for r in trained):
        reason = f"; the first, trial {trained[0].trial}: {trained[0].error}" if trained else ""
        raise OperationError(f"run {search.folder.name!r}: none of {len(trained)} nets could be trained{reason}")
    print_measuring(search, console)
    strategy = search.proposer.strategy
    if isinstance(strategy, BuildUp):
        console.print(steps_table(strategy.steps(search.history), strategy.starts, settings.metric))
    data = search.context.data
    if "pictures" in data.notes and not console.stderr:  # those decoded from files
        hint = probe_hint(data.name, len(data.train) + len(data.val), forward_speed())
        console.print(hint, highlight=False, markup=False, soft_wrap=True)


def print_measuring(search: SearchTrials, console: Console) -> None:
    """Say how much of the time that workers spent went into measuring nets, where any did."""
    seconds, training = search.context.devices.seconds, sum(r.spent_seconds for r in search.store.records)
    if seconds:
        line = f"measuring took {duration(seconds)}, {seconds / (seconds + training):.1%} of the work of this run"
        console.print(line, highlight=False, soft_wrap=True)


def print_afforded(shared: SharedWeights, trainings: float, console: Console) -> None:
    """Say how many kinds of blocks a bank can train, where that is not all of them."""
    kinds, budget = shared.sampler.kinds, shared.budget
    needed = trainings_needed(trainings, budget, kinds)
    if needed > trainings:
        bank = f"the bank has {budget.bank / budget.training:.1f} full trainings for {kinds} kinds of blocks"
        rule = f"slices that rank nets take about {TRAININGS_A_KIND} each"
        console.print(
            f"{bank}, and {rule}: nets of some will be hardly trained; search a space of fewer kinds, leave --supernet "
            f"out, or give it {math.ceil(needed)}",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


def announce(search: SearchTrials, work: Work, beside: float, console: Console) -> None:
    """Say what a search will do, what work that is, and how many FLOPs of it what is not searched."""
    context = search.context
    settings = context.settings
    if len(context.data.val):  # which a user's own training may bring
        for line in at_outset(context.of_training, settings.recipe, settings.metric, settings.folds):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if context.measured_here:
        console.print("one worker both trains and measures latency")
    for device in settings.devices:
        console.print(
            f"device {device.name} measures nets by {device.command}", highlight=False, markup=False, soft_wrap=True
        )
    if settings.other_costs:
        weighed, rest = settings.objective, ", ".join(settings.other_costs)
        line = f"the strategy weighs accuracy against {weighed} alone; {rest} are measured, and rank nets in the end"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if context.pretrained:
        label = context.pretrained.start.label
        console.print(f"every net starts from {label}, for {BUDGET_SHARE:g} of the budget", highlight=False)
    if context.settings.tune:
        fields = ", ".join(tuned_values(context.settings.tune))
        rest = f"baselines are trained by recipe {context.settings.recipe.name} as it is"
        console.print(f"drawn with each net: {fields}; {rest}", highlight=False, soft_wrap=True)
    supernet = settings.supernet
    if search.shared and supernet and not supernet.bank and not search.store.records:
        print_afforded(search.shared, supernet.trainings, console)
    if context.settings.scheduler != "none":
        console.print(f"scheduler {context.settings.scheduler}: weaker nets stop early")
    console.print(_compute(search, work.flops, beside), highlight=False, soft_wrap=True)
    if fitted_to_few(settings.recipe):
        console.print(small_steps(work, forward_speed()), highlight=False, soft_wrap=True)


def small_steps(work: Work, speed: float) -> str:
    """About how long one core takes for a search of many small steps, at so many FLOPs a second."""
    seconds = (work.flops + STEP_FLOPS * work.steps) / speed
    return f"small steps, many of them: about {duration(seconds)} of one core here; --epochs N is shorter or longer"


def _compute(search: SearchTrials, flops: float, beside: float) -> str:
    """What a search takes, and how much of it what is not searched."""
    about = "about" if not search.store.records else "still to come: about"
    line = f"compute: {about} {short(flops)} FLOPs of training (6 x MACs x images)"
    if beside:
        line += f", {beside / flops:.0%} of it for what is not searched: plain ResNets and known nets"
    left_out = [net.name for net in search.context.references if net not in search.references]
    lacks_plain = bool(search.settings.run.budget.baselines and search.context.baselines and not search.baselines)
    if search.compute.limit < math.inf:
        left_out += ["plain ResNets"] * lacks_plain
        return f"{line}; the limit is too low for {', '.join(left_out)}" if left_out else line
    if lacks_plain:
        why = f"the cheapest would take more than {BESIDE_SHARE:.0%} of all; no gain is known, more --trials bring one"
        line += f"; no plain ResNet is trained: {why}"
    return line


def probe_hint(data: str, pictures: int, speed: float) -> str:
    """The command that judges cuts of pretrained nets on some data, and about how long that takes.

    Args:
        data: their name.
        pictures: to train and to validate on.
        speed: FLOPs a second of a core, as `forward_speed` measures them.
    """
    pairs = [net.macs_at(side) for net in ladder() for side in net.sides if side <= LARGEST_SIDE]
    within = [macs for macs in pairs if macs <= UP_TO]
    seconds = FORWARD_FACTOR * sum(within) * pictures / speed
    return (
        f"what ImageNet's weights know of these pictures is not tried: alternas search pretrained --data "
        f"{shlex.quote(data)} judges cuts of {len(within)} nets and sizes up to {UP_TO / 1e6:.0f} M MACs without "
        f"training, in about {duration(seconds)} of one core here, beside downloads"
    )


def forward_speed() -> float:
    """About how many FLOPs a second one core of this machine does in forward passes, by a product of matrices."""
    a, count = np.ones((SIDE, SIDE), np.float32), 0
    with ThreadpoolController().limit(limits=1):
        _ = a @ a
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < SECONDS:
            _ = a @ a
            count += 1
    return OF_MATMUL * 2 * SIDE**3 * count / took

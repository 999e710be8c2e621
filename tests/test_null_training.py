"""Steps of a training on the null device: no wait for the card, no copy from it, no memory asked for, few launches."""

from __future__ import annotations

import pytest

from alternas.search.training.recipe import OPTIMIZERS, Augment
from null_cuda.client import OnNullDevice
from null_cuda.training import counts_of_step

FUSED = ("adamw", "adam", "sgd", "momentum")
OTHERS = tuple(name for name in OPTIMIZERS if name not in FUSED)
NEVER = ("waits", "to_host", "allocations")  # of a step
EVERYTHING = {
    "schedule": "constant", "loss": "binary", "label_smoothing": 0.1, "dropout": 0.1, "drop_path": 0.1,
    "clip_grad": 1.0, "grad_accum_steps": 2, "sam_rho": 0.05,
}  # fmt: skip
AUGMENT = Augment(
    rrc_min_scale=0.5, pad=1, flip=True, ra_num_ops=2, ra_magnitude=5, ra_magnitude_std=0.5, reprob=0.25,
    mixup=0.8, cutmix=1.0,
)  # fmt: skip
# Of a step at batch 256 in bfloat16: what the host launches, copies on the device among it, what the device then
# runs, and what the host launches without a graph. A change that adds to them says why.
BUDGETS = {"resnet": (6, 293, 276), "alternet50": (6, 807, 790), "vit": (6, 684, 667)}
MORE = 1.03


def faults_of_steps(optimizers: list[str], precision: str) -> dict[str, dict[str, float]]:
    """What steps with these optimisers ask of the device and should not, by optimiser."""
    steps = {name: counts_of_step("small", 16, optimizer=name, precision=precision) for name in optimizers}
    faults = {name: {what: found[what] for what in NEVER if found[what]} for name, found in steps.items()}
    return {name: found for name, found in faults.items() if found}


def faults_of_a_full_recipe(net: str) -> dict[str, float]:
    """The same of a step with all that a recipe can have."""
    found = counts_of_step(net, 16, precision="bfloat16", augment=AUGMENT, **EVERYTHING)
    return {what: found[what] for what in NEVER if found[what]}


def launched_and_run() -> dict[str, tuple[float, float, float]]:
    """What the host launches and what the device runs in a step of each net, and the launches of an eager one."""
    found = {}
    for name in BUDGETS:
        step, eager = (counts_of_step(name, precision="bfloat16", eager=eager) for eager in (False, True))
        launches = step["launches"] + step["on_device"]
        found[name] = launches, launches + step["graph_kernels"], eager["launches"] + eager["on_device"]
    return found


@pytest.mark.whole
@pytest.mark.parametrize(
    ("precision", "optimizers"),
    [
        ("float32", OPTIMIZERS),
        ("bfloat16", OPTIMIZERS),
        ("float16", FUSED),
        pytest.param("float16", OTHERS, marks=pytest.mark.xfail(reason="fault 8: the scaler waits for the device")),
    ],
)
def test_a_step_never_waits(on_null_device: OnNullDevice, precision: str, optimizers: tuple[str, ...]) -> None:
    assert on_null_device(faults_of_steps, optimizers, precision) == {}


@pytest.mark.parametrize("net", ["small", "vit"])
def test_no_part_of_a_recipe_waits(on_null_device: OnNullDevice, net: str) -> None:
    assert on_null_device(faults_of_a_full_recipe, net) == {}


def test_launches_of_a_step(on_null_device: OnNullDevice) -> None:
    found = on_null_device(launched_and_run)
    too_many = [
        name
        for name, budget in BUDGETS.items()
        if any(count > MORE * most for count, most in zip(found[name], budget, strict=True))
    ]
    assert too_many == [], found

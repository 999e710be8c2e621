"""Training on a device that computes nothing: what is asked of it, graphs, limits, and every kind of job."""

import dataclasses
import tempfile
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from alternas.archs import Genotype, Stage, Stem, static_cost
from alternas.results.analysis.registry import ANALYSES, analyse
from alternas.results.analysis_tools.inputs import AnalysisInput, AnalysisResult, Images
from alternas.results.latency.on_this_machine import measure
from alternas.results.latency.setting import SHORT, LatencySetting
from alternas.search.engine.worker import Worker, use_share
from alternas.search.training.bank_jobs import EvaluateJob, SupernetJob
from alternas.search.training.job import Job, JobResult, LatencyJob
from alternas.search.training.launches import GraphedFunction
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import Trainer
from alternas.search.training.recipe import OPTIMIZERS, Augment
from null_cuda.client import OnNullDevice
from null_cuda.kernels import counted
from null_cuda.training import CUDA, NETS, SMALL, counts_of_step, job, noise, recipe_of


def card() -> list[Any]:
    """Name and capability of the first card, how many there are, and whether bfloat16 is fast."""
    cuda = torch.cuda
    fast = cuda.is_bf16_supported(including_emulation=False)
    return [cuda.get_device_name(), list(cuda.get_device_capability()), cuda.device_count(), fast]


def operations() -> dict[str, dict[str, int]]:
    """What operations ask of the device."""
    x = torch.ones(64, 64, device="cuda")
    torch.mm(x, x)  # the first product makes room for cuBLAS
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (x @ x).sum()
    return {
        "add": counted(lambda: x + x),
        "product": counted(lambda: x @ x),
        "item": counted(lambda: x[0, 0].item()),
        "copy": counted(lambda: torch.ones(8).to("cuda")),
        "graph": counted(graph.replay),
        "large": counted(lambda: torch.empty(2**28, device="cuda")),
    }


def waiting_inside_a_graph() -> str:
    """The error of a captured step that waits for the device."""
    x = torch.ones(8, device="cuda")
    with pytest.raises(RuntimeError) as error, torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.sum().item()
    return str(error.value)


def after_an_assert() -> list[str]:
    """Errors of what is asked of a device on which an assertion has failed."""
    x, errors = torch.ones(8, device="cuda"), []
    for what in (lambda: x + x, torch.cuda.synchronize, lambda: torch.ones(8).to("cuda")):
        with pytest.raises(torch.AcceleratorError) as error:
            what()
        errors.append(str(error.value).splitlines()[0])
    return errors


def filled() -> list[int]:
    """GiB held and free when memory has run out, and whether a smaller tensor still fits."""
    held = [torch.empty(2**30, dtype=torch.uint8, device="cuda") for _ in range(3)]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**30, dtype=torch.uint8, device="cuda")
    free, total = torch.cuda.mem_get_info()
    small = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    return [len(held), free // 2**20, total // 2**20, len(small) // 2**20]


@pytest.mark.parametrize(
    ("capability", "name", "fast"),
    [("7.5", "Tesla T4", False), ("8.0", "NVIDIA A100-SXM4-80GB", True), ("9.0", "NVIDIA H100 80GB HBM3", True)],
)
def test_cards(on_null_device: OnNullDevice, capability: str, name: str, fast: bool) -> None:
    found = on_null_device(card, NULL_CUDA_CAPABILITY=capability, NULL_CUDA_DEVICES="4", CUDA_VISIBLE_DEVICES="3,1")
    assert found == [name, [*map(int, capability.split("."))], 2, fast]


def test_counts(on_null_device: OnNullDevice) -> None:
    found = on_null_device(operations)
    rows = {name: {what: number for what, number in row.items() if number} for name, row in found.items()}
    assert rows == {
        "add": {"launches": 1},
        "product": {"launches": 1},
        "item": {"waits": 1, "to_host": 1},
        "copy": {"to_device": 1, "waits": 1},
        "graph": {"launches": 1, "graph_kernels": 2},
        "large": {"allocations": 1},
    }


def test_a_graph_must_not_wait(on_null_device: OnNullDevice) -> None:
    assert "not permitted when stream is capturing" in on_null_device(waiting_inside_a_graph)


def test_an_error_stays(on_null_device: OnNullDevice) -> None:
    found = on_null_device(after_an_assert, NULL_CUDA_FAULT="2")
    assert found == ["CUDA error: device-side assert triggered"] * 3


def test_memory_ends_where_it_is_said(on_null_device: OnNullDevice) -> None:
    assert on_null_device(filled, NULL_CUDA_MEMORY=str(7 * 2**29)) == [3, 512, 3584, 256]


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
@pytest.mark.parametrize(("precision", "optimizers"), [
    ("float32", OPTIMIZERS),
    ("bfloat16", OPTIMIZERS),
    ("float16", FUSED),
    pytest.param("float16", OTHERS, marks=pytest.mark.xfail(reason="fault 8: the scaler waits for the device")),
])  # fmt: skip
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


MIB = 2**20


def graphs_of_trainings() -> dict[str, Any]:
    """Whether steps became a graph, by what a recipe changes."""
    worker, found = Worker(1, "cuda"), {}
    worker.take(noise(64, 16))
    for changes in ({}, {"optimizer": "momentum"}, {"optimizer": "lion"}, {"sam_rho": 0.05}, {"precision": "float16"}):
        recipe = dataclasses.replace(recipe_of(**changes), batch_size=16)
        end = list(worker.run(job(SMALL, recipe, 8)))[-1]
        assert isinstance(end, JobResult)
        found[" ".join(map(str, changes.values()))] = [end.status, end.how.get("graph", False)]
    return found


class Layouts(nn.Module):
    """A net that notes the layout of its images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.seen = nn.Conv2d(3, 8, 3), set[bool]()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        self.seen.add(x_BCHW.is_contiguous(memory_format=torch.channels_last))
        self.seen.add(self.conv.weight.is_contiguous(memory_format=torch.channels_last))
        return self.conv(x_BCHW)


def measured_as_a_graph() -> list[Any]:
    """Layouts that a net was measured in, how often it was called, and runs that were timed."""
    net = Layouts()
    latency = measure(net, (3, 8, 8), LatencySetting("cuda", 4, "float16", "graph"), effort=SHORT)
    return [sorted(net.seen), latency.repeats > 10, latency.to_dict()["runtime"]]


def shares() -> list[float]:
    """MiB that a process may hold by its share of a card of 4,096, where CUDA takes 512 beside."""
    found = []
    for share in (1.0, 0.5, 0.25, 0.05):
        use_share(share)
        found.append(round(4096 * torch.cuda.get_per_process_memory_fraction(), 1))
    return found


def left_behind() -> list[int]:
    """MiB that a worker's process holds after trainings of ever larger batches."""
    worker, found = Worker(1, "cuda"), []
    worker.take(noise(512, 16))
    for images in (16, 128, 512):
        list(worker.run(job(SMALL, dataclasses.replace(recipe_of(), batch_size=images), 6)))
        found.append(torch.cuda.memory_reserved() // MIB)
    return found


def step_bytes(name: str) -> list[int]:
    """Bytes of torch's that a step takes at most, and what is estimated of them."""
    net, data = NETS[name](), noise(512)
    trainer = Trainer(job(net, recipe_of()), MemoryLoader(data, torch.device("cuda")))
    trainer.graph.wanted = False
    trainer.net.train()
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        trainer.train_step(*next(trainer.batches))
    images = sum(len(split) for split in (data.train, data.val, data.test) if split)
    estimated = static_cost(net, 10, 32).gpu_training_bytes(256, images * 3 * 32 * 32)
    return [torch.cuda.max_memory_allocated(), estimated - 512 * MIB]


def copies_of_a_function() -> dict[str, int]:
    """What a call of a captured function asks of the device."""
    graphed, x = GraphedFunction(torch.device("cuda")), torch.ones(8)
    for _ in range(5):
        graphed(lambda x, factor: (x * factor).relu(), [x], 2.0)
    return counted(lambda: graphed(lambda x, factor: (x * factor).relu(), [x], 3.0))


def refused() -> list[Any]:
    """A step that waits for the device, done six times: whether each found no gradients, and whether it is a graph."""
    weight, calls = nn.Parameter(torch.ones(8, device="cuda")), []
    optimizer = torch.optim.AdamW([weight], fused=True)
    graphed = GraphedFunction(torch.device("cuda"), optimizer=optimizer)

    def waits(x: Tensor) -> Tensor:
        calls.append(weight.grad is None)
        loss = (x * weight).sum()
        loss.backward()
        loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    for _ in range(6):
        graphed(waits, [torch.ones(8)])
    return [calls, graphed.graph is None, graphed.wanted, optimizer.param_groups[0]["capturable"]]


def test_steps_that_are_always_the_same_are_a_graph(on_null_device: OnNullDevice) -> None:
    assert on_null_device(graphs_of_trainings) == {
        "": ["ok", True], "momentum": ["ok", True], "lion": ["ok", False], "0.05": ["ok", False],
        "float16": ["ok", False],
    }  # fmt: skip


def test_latency_is_measured_in_the_layout_of_cards(on_null_device: OnNullDevice) -> None:
    assert on_null_device(measured_as_a_graph) == [[True], True, "graph"]


def test_a_part_of_a_card_has_its_part_of_the_memory(on_null_device: OnNullDevice) -> None:
    found = on_null_device(shares, NULL_CUDA_MEMORY=str(4096 * MIB))
    assert found == [4096.0, 1536.0, 512.0, 102.4]


def test_a_worker_keeps_no_memory_between_jobs(on_null_device: OnNullDevice) -> None:
    first, *rest = on_null_device(left_behind)
    assert all(held <= first + 2 for held in rest), [first, *rest]


@pytest.mark.parametrize("net", ["resnet", "vit"])
def test_memory_of_a_step_is_as_estimated(on_null_device: OnNullDevice, net: str) -> None:
    taken, estimated = on_null_device(step_bytes, net)
    assert estimated == pytest.approx(taken, rel=0.15)


def test_a_captured_call_is_one_launch(on_null_device: OnNullDevice) -> None:
    found = {what: number for what, number in on_null_device(copies_of_a_function).items() if number}
    assert found == {"launches": 1, "graph_kernels": 2, "to_device": 2, "on_device": 1}


def test_what_cuda_refuses_stays_eager(on_null_device: OnNullDevice) -> None:
    assert on_null_device(refused) == [[True] * 7, True, False, False]


PLAIN = Genotype(Stem("cifar", 8), (Stage("basic", 1, 8), Stage("basic", 1, 16, 2)))
ODD = {"linear", "distance", "heads"}  # analyses whose shapes follow from values, which are none here
QUICK: dict[str, dict[str, int]] = {
    "hessian": {"steps": 2}, "noise": {"seeds": 1}, "landscape": {"side": 3}, "field": {"images": 2, "passes": 1},
}  # fmt: skip


def results(*jobs: Job, images: int = 64) -> list[JobResult]:
    """How jobs of one worker end, one after the other."""
    worker = Worker(1, "cuda")
    worker.take(noise(images, 16))
    ends = [list(worker.run(job))[-1] for job in jobs]
    assert all(isinstance(end, JobResult) for end in ends)
    return ends  # type: ignore[return-value]


def said(*jobs: Job, images: int = 64) -> list[list[Any]]:
    """Status, step and error of each job."""
    return [[end.status, end.step, end.error] for end in results(*jobs, images=images)]


def trained_and_resumed(precision: str) -> list[Any]:
    """Ends of a training in two parts; then where all of its state is once it is loaded."""
    recipe = dataclasses.replace(recipe_of(precision=precision), batch_size=16)
    whole = job(SMALL, recipe, 8)
    half = dataclasses.replace(whole, stop_step=4)
    ends = said(half, whole)
    trainer = Trainer(whole, MemoryLoader(noise(64, 16), CUDA))
    assert trainer.ema is not None
    state = [*trainer.net.state_dict().values(), *trainer.ema.net.state_dict().values()]
    moments = [value for of_one in trainer.optimizer.state.values() for value in of_one.values()]
    return [ends, sorted({tensor.device.type for tensor in [*state, *moments]}), trainer.step]


def is_graph_once_resumed() -> bool:
    """Whether the steps behind a checkpoint become a graph, as those before did."""
    recipe = dataclasses.replace(recipe_of(), batch_size=16)
    whole = job(SMALL, recipe, 16)
    ends = results(dataclasses.replace(whole, stop_step=8), whole)
    return [end.how.get("graph", False) for end in ends] == [True, True]


def bank_and_nets_of_it() -> list[Any]:
    """A bank in two jobs, which meets a net with new parts when it is evaluated."""
    folder, recipe = tempfile.mkdtemp(), dataclasses.replace(recipe_of(), batch_size=16)
    known, new = (PLAIN, PLAIN), (PLAIN, SMALL)
    newer = dataclasses.replace(SMALL, stages=(*SMALL.stages, Stage("convnext", 1, 16, 2)))
    first = SupernetJob((known,) * 2, 0, 4, (PLAIN, SMALL), (PLAIN,), recipe, 0, f"{folder}/state", f"{folder}/bank")
    second = dataclasses.replace(first, nets=(new,) * 2, start_step=2)
    evaluated = (EvaluateJob(1, net, first.weights, recipe, f"{folder}/w.safetensors") for net in (SMALL, newer))
    return said(first, second, *evaluated)


def measured(dtype: str) -> list[Any]:
    """How a measurement of latency ends, and on what machine."""
    setting = LatencySetting("cuda", 1, dtype)
    end = results(LatencyJob(0, PLAIN, setting, (3, 16, 16), 10))[0]
    return [end.status, end.error, end.latency.get("machine")]


def failing_analyses() -> dict[str, str]:
    """Errors of analyses of a net that is on the card, by name."""
    from alternas.archs import build
    from nets import NETS as NETS_OF_ALL_KINDS

    torch.backends.cudnn.enabled = False  # second derivatives need more of it than is replaced
    rgb = torch.rand(15, 3, 16, 16, device=CUDA), torch.arange(15, device=CUDA) % 5
    images = Images(*rgb, torch.full((3,), 0.5, device=CUDA), torch.full((3,), 0.3, device=CUDA))
    errors = {}
    for net in ("vit", "msa", "basic"):
        subject = AnalysisInput(net, build(NETS_OF_ALL_KINDS[net], 5, 16, 3).to(CUDA), images)
        for name in sorted(ANALYSES.keys() - ODD):
            try:
                found = analyse(name, subject, subject if ANALYSES[name].two else None, **QUICK.get(name, {}))
            except (RuntimeError, TypeError) as error:
                errors[f"{name} of {net}"] = str(error).splitlines()[0]
            else:
                assert isinstance(found, AnalysisResult) or net != "vit", found
    return errors


def passes(images: int) -> list[Any]:
    """Status and passes of a training whose batches are of so many images, and whether it ends in an error."""
    recipe = dataclasses.replace(recipe_of(precision="float32"), batch_size=images)
    end = results(job(NETS["resnet"](), recipe, 2), images=images)[0]
    return [end.status, end.how.get("passes"), "out of memory" in end.error]


def after_a_fault() -> list[Any]:
    """Ends of three trainings, in the first of which the card fails for good."""
    recipe = dataclasses.replace(recipe_of(), batch_size=16)
    return [end.status for end in results(*(job(SMALL, recipe, 4) for _ in range(3)))]


def precision() -> list[Any]:
    """The precision that "auto" comes to, and how the training ends."""
    end = results(job(SMALL, dataclasses.replace(recipe_of(), batch_size=16), 4))[0]
    return [end.status, end.how["precision"], end.device]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_training_is_resumed_on_its_card(on_null_device: OnNullDevice, precision: str) -> None:
    found = on_null_device(trained_and_resumed, precision)
    assert found == [[["ok", 4, ""], ["ok", 8, ""]], ["cuda"], 8]


def test_a_resumed_training_is_a_graph(on_null_device: OnNullDevice) -> None:
    assert on_null_device(is_graph_once_resumed)


def test_a_bank_is_trained_and_grows_on_its_card(on_null_device: OnNullDevice) -> None:
    assert on_null_device(bank_and_nets_of_it) == [["ok", 2, ""], ["ok", 4, ""], ["ok", 0, ""], ["ok", 0, ""]]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_latency_is_measured_on_the_card(on_null_device: OnNullDevice, dtype: str) -> None:
    assert on_null_device(measured, dtype) == ["ok", "", "NVIDIA H100 80GB HBM3"]


def test_analyses_stay_on_the_card(on_null_device: OnNullDevice) -> None:
    assert on_null_device(failing_analyses) == {}


def test_a_batch_that_does_not_fit_goes_through_in_parts(on_null_device: OnNullDevice) -> None:
    assert on_null_device(passes, 256) == ["ok", 1, False]
    assert on_null_device(passes, 256, NULL_CUDA_MEMORY=str(140 * MIB)) == ["ok", 2, False]
    assert on_null_device(passes, 256, NULL_CUDA_MEMORY=str(24 * MIB)) == ["oom", None, True]


def test_a_worker_ends_with_its_card(on_null_device: OnNullDevice) -> None:
    """No net is blamed."""
    with pytest.raises(AssertionError, match=r"BrokenCardError.*device-side assert"):
        on_null_device(after_a_fault, NULL_CUDA_FAULT="1000")


@pytest.mark.parametrize(("capability", "expected", "card"), [
    ("7.5", "float16", "Tesla T4"), ("8.0", "bfloat16", "NVIDIA A100-SXM4-80GB"),
    ("9.0", "bfloat16", "NVIDIA H100 80GB HBM3"),
])  # fmt: skip
def test_every_card_trains_in_what_it_is_fast_in(
    on_null_device: OnNullDevice, capability: str, expected: str, card: str
) -> None:
    assert on_null_device(precision, NULL_CUDA_CAPABILITY=capability) == ["ok", expected, card]

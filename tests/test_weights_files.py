"""Weights of timm's nets as people have them: pickles, prefixes, other names, broken files, a silent hub."""

import argparse
import io
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file
from torch import Tensor, nn

from alternas.archs import InputError, OperationError, pickles
from alternas.archs.state_dicts import matched_names
from alternas.archs.timm import create, hub
from alternas.archs.timm.weights_files import NetWeights, find_weights, load_into, why_no_weights
from alternas.archs.weights import open_weights
from nets import lively

pytestmark = pytest.mark.usefixtures("elsewhere")

NAME = "mobilenetv4_conv_small_050"
State = dict[str, Tensor]


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    torch.manual_seed(0)
    return lively(timm.create_model(NAME)).eval()


def complaint(call: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def outputs(model: nn.Module, **how: Any) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        return model.eval()(torch.randn(2, how.get("channels", 3), 64, 64, generator=generator))


def renamed(state: State) -> State:
    """Other names in the same order."""
    return {f"layers.{i}.{name.rsplit('.', 1)[-1]}": value for i, (name, value) in enumerate(state.items())}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has pickles converted in this process, which takes no seconds to import torch."""

    def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        said = io.StringIO()
        monkeypatch.setattr(sys, "argv", command[3:])
        with redirect_stdout(said):
            pickles.main()
        return subprocess.CompletedProcess(command, 0, said.getvalue())

    monkeypatch.setattr(pickles.subprocess, "run", run)
    monkeypatch.setattr(pickles, "_limit_memory", lambda more: None)


WAYS: dict[str, Callable[[State], Any]] = {
    "as it is": lambda state: state,
    "DataParallel": lambda state: {f"module.{name}": value for name, value in state.items()},
    "compiled": lambda state: {f"_orig_mod.module.{name}": value for name, value in state.items()},
    "Lightning": lambda state: {
        "epoch": 3, "state_dict": {f"model.{n}": v for n, v in state.items()} | {"loss.weight": torch.ones(5)},
    },
    "of a training": lambda state: {"model": state, "args": argparse.Namespace(lr=0.1), "optimizer": {"state": {}}},
    "averaged": lambda state: {"state_dict": {n: v * 0 for n, v in state.items()}, "state_dict_ema": state},
    "by order": renamed,
    "without counts": lambda state: {n: v for n, v in state.items() if "num_batches" not in n},
    "parameters": lambda state: {n: nn.Parameter(v) if v.is_floating_point() else v for n, v in state.items()},
}  # fmt: skip


@pytest.mark.whole
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_saving_gives_the_same_net(way: str, trained: nn.Module) -> None:
    torch.save(WAYS[way](dict(trained.state_dict())), f"{NAME}.pth")
    net = create(NAME)
    assert load_into(net, find_weights(NAME, ".")) == ()
    assert torch.equal(outputs(net), outputs(trained))


def test_a_folder_is_searched_by_both_names(trained: nn.Module) -> None:
    full = f"{NAME}.e3000_r224_in1k"
    torch.save(trained.state_dict(), f"{NAME}.bin")
    assert find_weights(full, ".") == NetWeights(full, f"{NAME}.bin")
    torch.save(trained.state_dict(), f"{full}.pt")
    assert find_weights(NAME, ".") == NetWeights(full, f"{full}.pt")
    save_file(trained.state_dict(), f"{full}.safetensors")
    assert find_weights(NAME, ".") == NetWeights(full, f"{full}.safetensors")
    assert "weights-dir: must be a folder, got 'none'" in complaint(lambda: find_weights(NAME, "none"))
    assert "did you mean" in complaint(lambda: find_weights("mobilenetv4_conv_smal", "."))


@pytest.mark.usefixtures("here")
def test_another_head_and_other_channels(trained: nn.Module) -> None:
    """A trunk and a head for other classes leave the file's out; for grey images timm sums the filters."""
    save_file(trained.state_dict(), "net.safetensors")
    source = NetWeights(NAME, "net.safetensors")
    trunk = create(NAME, num_classes=0)
    assert load_into(trunk, source) == ()
    assert torch.equal(outputs(trunk), trained.forward_head(trained.forward_features(image()), pre_logits=True))  # type: ignore[operator]
    assert load_into(create(NAME, num_classes=7), source) == ("classifier.weight", "classifier.bias")
    torch.save({n: v for n, v in trained.state_dict().items() if "classifier" not in n}, "trunk.pth")
    assert load_into(create(NAME, num_classes=0), NetWeights(NAME, "trunk.pth")) == ()
    torch.save(renamed(dict(trained.state_dict())), "order.pth")
    assert load_into(create(NAME, num_classes=0), NetWeights(NAME, "order.pth")) == ()
    grey = create(NAME, num_classes=0, in_chans=1)
    load_into(grey, source)
    theirs = timm.create_model(
        NAME, pretrained=True, num_classes=0, in_chans=1, pretrained_cfg_overlay={"file": "net.safetensors"}
    )
    assert torch.equal(outputs(grey, channels=1), outputs(theirs, channels=1))


@torch.no_grad()
def image() -> Tensor:
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "size"), [("levit_128s", None), ("vit_tiny_patch16_224", (96, 96))])
def test_files_that_timm_reads_by_code_of_its_own(name: str, size: tuple[int, int] | None) -> None:
    """LeViT's convs were saved as linear layers; positions are resampled for another image size."""
    torch.manual_seed(0)
    model: Any = lively(timm.create_model(name))
    state = model.state_dict()
    if name == "levit_128s":
        state = {n: v[:, :, 0, 0] if v.dim() == 4 and v.shape[2:] == (1, 1) else v for n, v in state.items()}
    save_file({n: v.contiguous() for n, v in state.items()}, f"{name}.safetensors")
    ours = create(name, image_size=size)
    load_into(ours, find_weights(name, "."))
    more = {} if size is None else {"img_size": size}
    theirs = timm.create_model(name, pretrained=True, pretrained_cfg_overlay={"file": f"{name}.safetensors"}, **more)
    for one, two in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.usefixtures("here")
def test_broken_files_are_one_line(trained: nn.Module) -> None:
    torch.save(trained.state_dict(), "whole.pth")
    whole = Path("whole.pth").read_bytes()
    torch.save(trained, "model.pth")
    torch.jit.script(nn.ReLU()).save("script.pt")
    torch.save(timm.create_model("resnet18").state_dict(), "other.pth")
    torch.save({"best": 0.5}, "empty.pth")
    torch.save(trained.state_dict() | {"blocks.0.0.bn1.bias": torch.full((16,), float("nan"))}, "nan.pth")
    torch.save([torch.ones(1)], "list.pth")
    torch.save({f"{k}.{n}": v for n, v in trained.state_dict().items() for k in ("student", "teacher")}, "two.pth")
    for name, content in (("cut.pth", whole[: len(whole) // 2]), ("none.pth", b""), ("text.pth", b"weights"),
                          ("torn.pth", whole[:1000] + bytes(1000) + whole[2000:])):  # fmt: skip
        Path(name).write_bytes(content)
    for path, words in (
        ("cut.pth", "the pickle cannot be read"),
        ("none.pth", "is no safetensors file, or not all of one"),
        ("text.pth", "is no safetensors file, or not all of one"),
        ("torn.pth", "the pickle "),
        ("model.pth", "save a net's state_dict()"),
        ("script.pt", "the pickle "),
        ("empty.pth", "holds no tensors by names"),
        ("list.pth", "holds no tensors by names"),
        ("two.pth", "holds the net 2 times, behind 'student.', 'teacher.'"),
        ("nan.pth", "blocks.0.0.bn1.bias holds NaN or infinity"),
        ("other.pth", "'blocks.0.0.bn1.weight'; it has 'conv1.weight', "),
        (".", "is a folder"),
        ("gone.pth", "no such file"),
    ):
        text = complaint(lambda path=path: load_into(create(NAME), NetWeights(NAME, path)))
        assert text.startswith(f"weights: {path}: ")
        assert words in text, text


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("sprung",)


@pytest.mark.slow
def test_a_pickle_runs_nothing_and_takes_no_memory(trained: nn.Module) -> None:
    """In the process that reads it, whose memory is bounded by the file's size."""
    torch.save({"model": Trap()}, "trap.pth")
    torch.save({"a": torch.ones(1).expand(10**5, 10**5)}, "bomb.pth")
    for path, words in (("trap.pth", "holds more than tensors (posix.mkdir)"), ("bomb.pth", "memory")):
        text = complaint(lambda path=path: load_into(create(NAME), NetWeights(NAME, path)))
        assert words in text
    assert not Path("sprung").exists()
    pickle.loads(pickle.dumps(Trap()))
    assert Path("sprung").exists(), "a trap that works"
    torch.save(trained.state_dict(), "good.pth")
    net = create(NAME)
    load_into(net, NetWeights(NAME, "good.pth"))
    assert torch.equal(outputs(net), outputs(trained))


def test_sorted_names_are_never_taken_by_order(trained: nn.Module) -> None:
    """A safetensors file sorts its tensors, so that their order says nothing."""
    save_file({k: v.contiguous() for k, v in renamed(dict(trained.state_dict())).items()}, "sorted.safetensors")
    assert "are missing" in complaint(lambda: load_into(create(NAME), NetWeights(NAME, "sorted.safetensors")))
    needed = {"bn.weight": torch.ones(4), "bn.bias": torch.zeros(4)}
    with pytest.raises(InputError, match="missing"):
        matched_names(needed, {"n.bias": torch.zeros(4), "n.weight": torch.ones(4)}, ordered=True)
    assert not open_weights(Path("sorted.safetensors")).ordered


def test_a_hub_that_says_nothing_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", "cache")
        monkeypatch.setattr(hub, "getproxies", dict)
        monkeypatch.setattr(hub, "CONNECT_SECONDS", 0.1)
        monkeypatch.setattr(hub.time, "monotonic", lambda: 1e9)
        for name in (NAME, "resnet18"):
            with pytest.raises(OperationError, match="cannot be had") as caught:
                find_weights(name, tell=print)
            assert len(str(caught.value).splitlines()) == 1
        silent.settimeout(0)
        silent.accept()
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize(("code", "has"), [("", False), ("RepoNotFound", True)])
def test_a_gateway_that_answers_is_no_hub(code: str, has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each net and image side would be tried there, one after the other."""

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", "cache")
        monkeypatch.setattr(hub, "getproxies", dict)
        reason = why_no_weights("resnet18")
        server.shutdown()
    assert (reason == "", "the hub does not answer" in reason) == (has, not has)

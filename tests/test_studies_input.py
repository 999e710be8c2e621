"""Retrain, finetune, buildup, few-shot and study refuse bad input in one line and write nothing."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from alternas.archs import build, zoo
from alternas.archs.weights import save
from alternas.search.experiments.studies import STUDIES
from alternas.spaces import get
from runs import finished_run

pytestmark = pytest.mark.usefixtures("elsewhere")

NET = get("resnet", 8).baselines()[4]  # of two blocks a stage


@pytest.fixture
def files() -> Path:
    """Weights of many kinds in the folder that the command runs in."""
    network = build(NET, 10, 8, 1)
    save(network, Path("good.safetensors"))
    save(
        build(zoo.alternet("basic", (1, 2, 2), (0, 1, 1), (1, 1, 1), 0, width=4), 10, 8, 1),
        Path("alternet.safetensors"),
    )
    save(build(get("resnet", 8).baselines()[0], 10, 8, 1), Path("shallow.safetensors"))
    Path("cut.safetensors").write_bytes(Path("good.safetensors").read_bytes()[:-100])
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    save_file({n: t for n, t in state.items() if "head" not in n}, "missing.safetensors")
    save_file(state, "bare.safetensors")
    Path("net.json").write_text(NET.to_json(), encoding="utf-8")
    Path("pickle.pt").write_bytes(pickle.dumps(state))
    torch.save(state, "zip.pt")
    return Path()


COMMANDS = {"finetune": ("--data", "digits"), "buildup": ("--data", "digits"), "few-shot": ("--data", "digits")}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("given", "said"), [
    (["cut.safetensors"], "is no safetensors file, or not all of one"),
    (["missing.safetensors", "--arch", "net.json", "--from-size", "8"], "tensors are missing, first 'head.bias'"),
    (["bare.safetensors"], "name its architecture with --arch"),
    (["bare.safetensors", "--arch", "net.json"], "--from-size"),
    (["bare.safetensors", "--arch", "resnet18", "--from-size", "8"], "tensors are missing"),
    (["pickle.pt"], "the pickle is no file of torch.save"),
    (["zip.pt"], "the pickle is no file of torch.save"),
    (["nowhere.safetensors"], "no such file"),
    (["nowhere"], "is none of timm:NAME"),
    (["timm:resnet81"], "did you mean"),
    (["good.safetensors", "--from-size", "x"], "image size"),
])  # fmt: skip
def test_bad_weights(alternas: Any, files: Path, command: str, given: list[str], said: str) -> None:
    code, _, err = alternas(command, "--from", *given, *COMMANDS[command])
    assert (code, err.count("\n")) == (2, 1), err
    assert said in err
    assert not Path("runs").exists()


@pytest.mark.parametrize(("words", "said"), [
    (["finetune", "--freeze", "large"], "freeze: unknown value 'large'"),
    (["finetune", "--seeds", "0"], "seeds: must be 1 or more"),
    (["finetune", "--recipe", "smokey"], "did you mean 'smoke'"),
    (["finetune", "--image-size", "16"], "digits"),
    (["finetune", "--name", "../x"], "run name"),
    (["buildup", "--seeds", "0"], "repeats: must be from 1"),
    (["search", "swaps", "--data", "digits"], "space swaps: is of the ResNet of --from, got none"),
    (["few-shot", "--shots", "0"], "shots: must be 1 or more"),
    (["few-shot", "--shots", "5000"], "5000"),
    (["few-shot", "--ways", "11"], "11"),
    (["few-shot", "--episodes", "0"], "episodes: must be"),
    (["retrain", "nowhere"], "no run 'nowhere'"),
    (["retrain", "mine", "--top", "0"], "top: must be 1 or more"),
    (["retrain", "mine", "--seeds", "-1"], "seeds: must be 1 or more"),
    (["retrain", "mine", "--seeds", "100000000"], "seeds: must be at most"),
    (["retrain", "mine", "--trials", "99"], "no trial 99"),
    (["retrain", "mine", "--trials", "1", "--max-macs", "1M"], "give one of the two"),
    (["retrain", "mine", "--max-macs", "7"], "no net is within the limits (at most 7 MACs): 2 nets left out"),
    (["retrain", "mine", "--max-macs", "little"], "max-macs: must be a positive amount"),
    (["retrain", "mine"], "is no search, so it has no recipe"),
    (["retrain", "mine", "--recipe", "smoke"], "is not what run mine was trained on any more"),
    (["study", "data-sizes"], "did you mean 'data-size'"),
    (["study", "data-size", "--seeds", "0"], "seeds: must be"),
    (["study", "data-size", "--data", "digit"], "digit"),
    (["study", "data-size", "--data", "digits", "--name", "a/b"], "run name"),
])  # fmt: skip
def test_bad_settings(alternas: Any, files: Path, words: list[str], said: str) -> None:
    finished_run()
    start = ("--from", "good.safetensors", *COMMANDS[words[0]]) if words[0] in COMMANDS else ()
    code, _, err = alternas(words[0], *start, *words[1:])
    assert (code, err.strip().count("\n")) == (2, 0), err
    assert said in err
    assert [path.name for path in Path("runs").iterdir()] == ["mine"]
    assert not Path("runs/mine/retrain").exists()


@pytest.mark.parametrize(
    ("weights", "said"),
    [("alternet", "this net of family 'alternet' has attention"), ("shallow", "a stage of two blocks or more")],
)
def test_build_up_starts_from_a_resnet_with_blocks_to_swap(alternas: Any, files: Path, weights: str, said: str) -> None:
    code, _, err = alternas("buildup", "--from", f"{weights}.safetensors", "--data", "digits")
    assert code == 2
    assert said in err


@pytest.mark.parametrize(
    ("command", "said"),
    [("finetune", "holds a search; give this one another --name"), ("buildup", "exists with other settings: ")],
)
def test_another_runs_name_is_refused(alternas: Any, files: Path, command: str, said: str) -> None:
    folder = finished_run()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    code, _, err = alternas(command, "--from", "good.safetensors", "--data", "digits", "--name", "mine")
    assert code == 2
    assert said in err
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def test_studies_are_listed(alternas: Any) -> None:
    code, out, _ = alternas("studies", "--json")
    assert code == 0
    assert [row["study"] for row in json.loads(out)] == list(STUDIES)

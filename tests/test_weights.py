"""Weights files that say what they are of, every way that they can be wrong, and what a person calls them."""

import dataclasses
import hashlib
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from alternas.archs import Encoder, Genotype, Head, InputError, Network, OperationError, Stem, build, zoo
from alternas.archs.timm import hub
from alternas.archs.weights import describe, read, save
from alternas.results.runs.weights_spec import LoadedWeights, WeightsSpec
from nets import NETS, VIT, lively
from runs import made_run, net_row

pytestmark = pytest.mark.usefixtures("elsewhere")

NET = dataclasses.replace(NETS["vit pooled"], encoder=dataclasses.replace(VIT, depth=1))
DIGITS = zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4)
CLASSES = [str(i) for i in range(10)]


def find_weights(*words: Any) -> LoadedWeights:
    return WeightsSpec(*words).find()


def made(genotype: Genotype = NET, classes: int = 5, size: int | tuple[int, int] = 16, channels: int = 2) -> Network:
    torch.manual_seed(0)
    return lively(build(genotype, classes, size, channels))  # type: ignore[return-value]


def saved(network: Network, path: str = "net.safetensors") -> Path:
    save(network, Path(path))
    return Path(path)


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return list(one) == list(two) and all(torch.equal(a, b) for a, b in zip(one.values(), two.values(), strict=True))


def complaint(call: Callable[[], Any]) -> str:
    """The one line that a call complains with."""
    with pytest.raises(InputError) as caught:
        call()
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


@pytest.mark.parametrize("name", NETS)
def test_every_net_comes_back(name: str) -> None:
    net = made(NETS[name])
    path = saved(net)
    assert describe(path) == {"genotype": NETS[name].to_dict(), "num_classes": 5, "image_size": [16, 16], "in_chans": 2}
    back = read(path)
    assert same(net.state_dict(), back.state_dict())
    assert (back.genotype, back.num_classes, back.image_size, back.in_chans) == (NETS[name], 5, (16, 16), 2)
    assert back.training
    assert all(p.requires_grad and p.device.type == "cpu" for p in back.parameters())
    x = torch.randn(2, 2, 16, 16)
    assert torch.equal(net.eval()(x), back.eval()(x))
    plain = Path("plain.safetensors")
    save_file(load_file(path), plain)
    assert describe(plain) is None
    assert same(net.state_dict(), read(plain, NETS[name], 16).state_dict())


def test_two_saves_give_the_same_bytes() -> None:
    net = made(NETS["msa"])
    one, two = saved(net, "one.safetensors"), saved(net.to(memory_format=torch.channels_last), "deep/two.safetensors")
    assert one.read_bytes() == two.read_bytes()
    with safe_open(one, "pt") as file:
        assert file.metadata() == {"alternas": json.dumps(describe(one), sort_keys=True)}
    assert sorted(os.listdir()) == ["deep", "one.safetensors"]


def test_weights_are_the_nets_own() -> None:
    """Not the file's memory, which would change under the net, or end its process."""
    path = saved(made())
    net = read(path)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        file.write(b"\0" * size)
        file.flush()
        assert same(before, net.state_dict())
        file.truncate(0)
    assert same(before, net.state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_float_types_become_float32(dtype: torch.dtype) -> None:
    net = made(NETS["msa"]).to(dtype)
    back = read(saved(net))
    assert {p.dtype for p in back.parameters()} == {torch.float32}
    for one, two in zip(net.state_dict().values(), back.state_dict().values(), strict=True):
        assert torch.equal(one.to(two.dtype), two)


def changed(**changes: Tensor | None) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    names = {name.replace("__", "."): tensor for name, tensor in changes.items()}
    return lambda state: {k: t for k, t in (state | names).items() if t is not None}


NAN = torch.full((5,), float("nan"))
WRONG_STATES = {
    "1 of the net's 19 tensors are missing, first 'head.bias'": changed(head__bias=None),
    "1 tensors that the net does not have, first 'more'": changed(more=torch.zeros(1)),
    "encoder.norm.weight has shape (17,), the net needs (16,)": changed(encoder__norm__weight=torch.ones(17)),
    "encoder.positions.0.table has shape (1, 9, 16), the net needs (1, 16, 16)": changed(
        encoder__positions__0__table=torch.ones(1, 9, 16)
    ),
    "head for 10 classes, described as one for 5": changed(head__weight=torch.ones(10, 16), head__bias=torch.ones(10)),
    "head.bias holds NaN or infinity": changed(head__bias=NAN),
    "encoder.norm.bias holds NaN or infinity": changed(
        encoder__norm__bias=torch.full((16,), 1e300, dtype=torch.float64)
    ),
    "head.bias holds numbers of type int64": changed(head__bias=torch.ones(5, dtype=torch.int64)),
    "head.bias holds numbers of type float8_e4m3fn": changed(head__bias=torch.ones(5).to(torch.float8_e4m3fn)),
}


@pytest.mark.parametrize("words", WRONG_STATES)
def test_wrong_weights_are_named(words: str) -> None:
    net = made()
    facts = json.dumps(describe(saved(net)))
    save_file(WRONG_STATES[words](net.state_dict()), "wrong.safetensors", {"alternas": facts})
    assert complaint(lambda: read(Path("wrong.safetensors"))).startswith(f"weights: wrong.safetensors: {words}")


def test_a_count_of_batches_must_be_whole() -> None:
    net = made(NETS["basic"])
    name = next(name for name in net.state_dict() if name.endswith("num_batches_tracked"))
    facts = json.dumps(describe(saved(net)))
    save_file(net.state_dict() | {name: torch.tensor(1.0)}, "wrong.safetensors", {"alternas": facts})
    assert f"{name} holds numbers of type float32" in complaint(lambda: read(Path("wrong.safetensors")))


GOOD = {"genotype": NET.to_dict(), "num_classes": 5, "image_size": [16, 16], "in_chans": 2}
WRONG_DESCRIPTIONS = {
    "not JSON": "{",
    "is not JSON": "[" * 100_000,
    "its description must be an object, got []": "[]",
    "field: unknown value 'more'": json.dumps(GOOD | {"more": 1}),
    "in_chans is missing": json.dumps({k: v for k, v in GOOD.items() if k != "in_chans"}),
    "num_classes must be a whole number from 1 to 10000000": json.dumps(GOOD | {"num_classes": 10**9}),
    "image_size must be a list of 2": json.dumps(GOOD | {"image_size": [16]}),
    "patch 4 does not divide a 18x18 map": json.dumps(GOOD | {"image_size": [18, 18]}),
    "embed_dim must be": json.dumps(GOOD | {"genotype": NET.to_dict() | {"encoder": {"embed_dim": "wide"}}}),
    "genotype: field: unknown value 'wings'": json.dumps(GOOD | {"genotype": NET.to_dict() | {"wings": 2}}),
}


@pytest.mark.parametrize("words", WRONG_DESCRIPTIONS)
def test_wrong_descriptions_are_named(words: str) -> None:
    save_file(made().state_dict(), "wrong.safetensors", {"alternas": WRONG_DESCRIPTIONS[words]})
    text = complaint(lambda: read(Path("wrong.safetensors")))
    assert text.startswith("weights: wrong.safetensors: ")
    assert words in text


def test_a_huge_description_asks_for_no_memory() -> None:
    huge = Genotype(Stem("none"), (), Encoder(65536, 2, 1, 64, patch=1), Head("token"))
    facts = GOOD | {"genotype": huge.to_dict(), "image_size": [4096, 4096], "num_classes": 10_000_000}
    save_file(made().state_dict(), "huge.safetensors", {"alternas": json.dumps(facts)})
    assert "head for 5 classes" in complaint(lambda: read(Path("huge.safetensors")))


def test_no_file_no_safetensors_no_description() -> None:
    Path("folder").mkdir()
    Path("empty").touch()
    Path("text").write_text("weights, as it were: " * 10, encoding="utf-8")
    save_file({"a": torch.ones(1)}, "plain")
    for path, words in (
        ("missing.safetensors", "no such file"),
        ("folder", "is a folder, not a file"),
        ("empty", "is no safetensors file, or not all of one"),
        ("text", "is no safetensors file"),
        ("/dev/zero", "no such file"),
        ("plain", "no alternas description in it; name its architecture with --arch"),
    ):
        assert complaint(lambda path=path: read(Path(path))).startswith(f"weights: {path}: {words}")
    assert "--from-size" in complaint(lambda: read(Path("plain"), NET))
    assert "19 of the net's 19 tensors are missing" in complaint(lambda: read(Path("plain"), NET, 16))
    assert "does not divide" in complaint(lambda: read(Path("plain"), NET, 18))
    path = saved(made())
    assert f"is of the net {NET.key}, not of {NETS['vit'].key}" in complaint(lambda: read(path, NETS["vit"], 16))
    assert read(path, NET, 64).image_size == (16, 16), "a description knows better"


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("sprung"),)


def test_a_pickle_is_never_loaded_but_for_its_tensors() -> None:
    with open("old.safetensors", "wb") as file:
        pickle.dump(Trap(), file)
    torch.save({"a": Trap()}, "new.safetensors")
    torch.save({"a": Trap()}, "older.pth", _use_new_zipfile_serialization=False)
    for path in ("old.safetensors", "new.safetensors", "older.pth"):
        for call in (read, describe):
            text = complaint(lambda path=path, call=call: call(Path(path)))
            assert "is a pickle, which is not loaded here; save it as safetensors" in text
    text = complaint(lambda: find_weights("older.pth", "timm:resnet18"))
    assert text.startswith("weights: older.pth: the pickle holds more than tensors")
    assert not Path("sprung").exists()
    pickle.loads(Path("old.safetensors").read_bytes())
    assert Path("sprung").exists(), "a trap that works"


@pytest.mark.parametrize("first", [b"\x80", b"PK"])
def test_safetensors_that_begin_like_a_pickle(first: bytes) -> None:
    """The file begins with the length of its header."""
    net, facts, path = made(), json.dumps(GOOD), Path("net.safetensors")
    for more in range(0, 40_000, 8):
        if more and path.read_bytes().startswith(first):
            break
        length = int.from_bytes(path.read_bytes()[:8], "little") if more else 0
        pad = (int.from_bytes(first, "little") - length) % 256 ** len(first) if more else 0
        facts += " " * pad
        save_file(net.state_dict(), path, {"alternas": facts})
    assert path.read_bytes().startswith(first)
    assert same(read(path).state_dict(), net.state_dict())
    path.write_bytes(path.read_bytes()[:-9])
    assert "is no safetensors file, or not all of one" in complaint(lambda: read(path))


def attempt(path: Path) -> str:
    """What became of a damaged file: an error of one line, or a net with finite weights."""
    try:
        net = read(path)
    except InputError as error:
        right = str(error).startswith(f"weights: {path}: ") and len(str(error).splitlines()) == 1
        return "refused" if right else str(error)
    assert all(torch.isfinite(tensor).all() for tensor in net.state_dict().values())
    return "loaded"


def test_every_truncation_is_refused() -> None:
    whole, path = saved(made()).read_bytes(), Path("cut.safetensors")
    header = 8 + int.from_bytes(whole[:8], "little")
    cuts = {*range(0, header + 40, 7), *range(header, len(whole), 997), *range(9), header, len(whole) - 1}
    for cut in cuts:
        path.write_bytes(whole[:cut])
        assert attempt(path) == "refused", cut
    path.write_bytes(whole + b"\0")
    assert attempt(path) == "refused"


def test_random_damage_is_refused_or_loads() -> None:
    whole, path = saved(made()).read_bytes(), Path("hurt.safetensors")
    header, met = 8 + int.from_bytes(whole[:8], "little"), []
    for seed in range(240):
        rng, damaged = random.Random(seed), bytearray(whole)
        end = header if seed % 4 else len(whole)
        for _ in range(rng.choice((1, 2, 30))):
            damaged[rng.randrange(8 if seed % 2 else 0, end)] = rng.choice((rng.randrange(256), *b'{}[]",:019'))
        path.write_bytes(damaged)
        met.append(attempt(path))
    assert set(met) == {"refused", "loaded"}
    assert met.count("loaded") > 10


# ---- what a person calls them


def random_timm(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return lively(timm.create_model(name, **options)).eval()


def timm_file(model: nn.Module, path: str = "theirs.safetensors") -> str:
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [
    ("resnet18", {}),
    ("resnet18", {"num_classes": 7, "in_chans": 1}),
    ("vit_tiny_patch16_224", {}),
    ("vit_tiny_r_s16_p8_224", {"num_classes": 3}),
    ("mobilenetv3_small_100", {"num_classes": 7, "in_chans": 1}),
    ("efficientvit_b0", {"num_classes": 7, "in_chans": 1}),
    ("vit_tiny_patch16_224", {"num_classes": 7, "in_chans": 1, "img_size": (32, 48)}),
])  # fmt: skip
def test_timms_state_dict_gives_timms_outputs(name: str, options: dict[str, Any]) -> None:
    model, size = random_timm(name, **options), options.get("img_size")
    found = find_weights(timm_file(model), f"timm:{name}", size)
    x = torch.randn(2, options.get("in_chans", 3), *(size or (224, 224)))
    with torch.no_grad():
        wanted = model(x)
        assert wanted.std() > 0.01
        assert (found.network.eval()(x) - wanted).abs().max() < 1e-4
    assert found.network.image_size == (size or (224, 224))
    assert (found.mean, found.classes, found.data) == (None, None, None)
    assert found.label == f"file theirs.safetensors as timm's {name}"
    assert found.lineage["steps"] is None
    assert len(found.lineage["sha256"]) == 12


def test_timms_tag_says_how_a_file_was_trained() -> None:
    found = find_weights(timm_file(random_timm("resnet18")), "timm:resnet18.a1_in1k")
    assert found.mean == pytest.approx((123.675, 116.28, 103.53))  # ImageNet's, as every framework has them
    assert found.std == pytest.approx((58.395, 57.12, 57.375))
    assert found.data == "imagenet-1k"
    assert found.classes is not None
    assert (len(found.classes), found.classes[0]) == (1000, "n01440764")
    other = find_weights(timm_file(random_timm("resnet18", num_classes=3, in_chans=1)), "timm:resnet18.a1_in1k")
    assert (other.mean, other.std, other.classes, other.data) == (None, None, None, None)


def test_wrong_files_of_timm_are_named() -> None:
    path = timm_file(random_timm("resnet18", num_classes=3))
    assert "tensors are missing" in complaint(lambda: find_weights(path, "timm:resnet34"))
    assert "did you mean 'resnet18'" in complaint(lambda: find_weights(path, "timm:resnet1b"))
    assert "no model 'resnet18.zz'" in complaint(lambda: find_weights(path, "timm:resnet18.zz"))
    bad = load_file(path)
    save_file(bad | {"fc.bias": torch.full((3,), float("inf"))}, path)
    assert "fc.bias holds NaN" in complaint(lambda: find_weights(path, "timm:resnet18"))
    path = timm_file(random_timm("vit_tiny_patch16_224", img_size=32, depth=12))
    text = complaint(lambda: find_weights(path, "timm:vit_tiny_patch16_224"))
    assert "pos_embed has shape (1, 5, 192), the net needs (1, 197, 192)" in text


@pytest.fixture
def in_cache(monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.Module, str], None]:
    """Puts weights where the hub's library keeps what it has downloaded from timm/NAME."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "cache")

    def put(model: nn.Module, name: str) -> None:
        home = Path("cache") / f"models--timm--{name}"
        for folder in ("refs", "snapshots/0123"):
            (home / folder).mkdir(parents=True, exist_ok=True)
        (home / "refs" / "main").write_text("0123", encoding="utf-8")
        timm_file(model, str(home / "snapshots" / "0123" / "model.safetensors"))

    return put


def test_timms_weights_by_name(in_cache: Callable[[nn.Module, str], None]) -> None:
    model: Any = random_timm("mobilenetv3_small_100")
    in_cache(model, "mobilenetv3_small_100.lamb_in1k")
    found = find_weights("timm:mobilenetv3_small_100")
    x = torch.randn(1, 3, 64, 64)
    assert (found.network.eval()(x) - model(x)).abs().max() < 1e-4
    digest = found.lineage["sha256"]
    assert found.lineage == {"weights": "timm's mobilenetv3_small_100.lamb_in1k", "sha256": digest, "steps": None}
    assert found.mean == pytest.approx((123.675, 116.28, 103.53))
    with torch.no_grad():
        model.classifier.bias.add_(1.0)
    in_cache(model, "mobilenetv3_small_100.lamb_in1k")
    assert find_weights("timm:mobilenetv3_small_100").lineage["sha256"] != digest


@pytest.mark.parametrize("error", [LocalEntryNotFoundError("no\nnetwork"), OSError(), ConnectionError("bad hash")])
def test_a_failed_download_says_what_to_do(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*words: Any, **more: Any) -> None:
        raise error

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    monkeypatch.setattr(hub, "_is_reachable", lambda address, minute: True)
    with pytest.raises(OperationError, match=r"--from FILE --arch timm:mobilenetv3_small_100\.lamb_in1k") as caught:
        find_weights("timm:mobilenetv3_small_100")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("reachable", [True, False])
def test_a_hub_that_does_not_answer_is_asked_nothing(reachable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library would try for a minute; with `HF_HUB_OFFLINE` it looks into its cache alone."""

    def download(repository: str, name: str, revision: str | None) -> str:
        seen.append(constants.HF_HUB_OFFLINE)
        return timm_file(random_timm("mobilenetv3_small_100"))

    seen = list[bool]()
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "cache")
    monkeypatch.setattr(hub, "_is_reachable", lambda address, minute: reachable)
    find_weights("timm:mobilenetv3_small_100")
    assert (seen, constants.HF_HUB_OFFLINE) == ([not reachable], False)


def test_what_timm_cannot_give() -> None:
    assert "did you mean 'resnet18'" in complaint(lambda: find_weights("timm:resnet1b"))
    assert "no genotype says that" in complaint(lambda: find_weights("timm:vgg11"))
    assert "no weights for 'resnet200'" in complaint(lambda: find_weights("timm:resnet200"))
    assert "timm has no model ''" in complaint(lambda: find_weights("timm:"))
    assert "--arch says what a file holds" in complaint(lambda: find_weights("timm:resnet18", "resnet18"))


def finished_run(weights: Network | None, **more: Any) -> Path:
    """A run: trial 0, the better trial 1, its duplicate 2, a failed one, a retraining."""
    whole = {"done": 16, "full": 16}
    rows = [
        net_row(0, zoo.alternet("basic", (1, 1), (0, 0), (1, 1), 0, width=4), accuracy=0.9, budget=whole),
        net_row(1, DIGITS, **{"accuracy": 0.91, "budget": whole} | more),
        net_row(2, DIGITS, status="duplicate", accuracy=0.91, budget={"done": 0, "full": 16}),
        net_row(3, DIGITS, status="oom", budget={"done": 3, "full": 16}),
        net_row(4, DIGITS, kind="retrain", accuracy=0.5, training_id="0123456789ab"),
    ]
    folder = made_run(Path("runs") / "mine", rows, settings={"objective": "macs"})
    if weights:
        save(weights, folder / "weights" / f"{DIGITS.key}.safetensors")
    return folder


def test_a_net_of_a_run() -> None:
    net = made(DIGITS, 10, 8, 1)
    folder = finished_run(net)
    for text in ("mine", "mine:1", str(folder), f"{folder}:1"):
        found = find_weights(text)
        assert same(found.network.state_dict(), net.state_dict())
        assert found.label == "run mine, trial 1"
        assert (found.mean, found.std, found.classes, found.data) == ((4.9,), (6.0,), tuple(CLASSES), "digits")
        assert (found.lineage["weights"], found.lineage["steps"]) == ("run mine, trial 1", 16)
        assert found.network.image_size == (8, 8)
    assert find_weights("mine:2").lineage["steps"] == 16, "a duplicate's are its twin's"
    assert "not trained to the end (status oom)" in complaint(lambda: find_weights("mine:3"))
    assert "trained weights are not there" in complaint(lambda: find_weights("mine:0"))
    assert "no trial 9" in complaint(lambda: find_weights("mine:9"))
    assert "--arch says what a file holds" in complaint(lambda: find_weights("mine", "resnet18"))
    retrained = made(DIGITS, 10, 8, 1).eval()
    with torch.no_grad():
        retrained.head.bias.add_(1.0)  # type: ignore[union-attr]
    save(retrained, folder / "weights" / "0123456789ab.safetensors")
    assert same(find_weights("mine:4").network.state_dict(), retrained.state_dict())
    assert find_weights("mine:4").lineage["steps"] is None
    finished_run(None, lineage={"weights": "timm's", "steps": 100})
    assert find_weights("mine:1").lineage["steps"] == 116
    for unknown in ({"weights": "timm's", "steps": None}, {"weights": "timm's"}):
        finished_run(None, lineage=unknown)
        assert find_weights("mine:1").lineage["steps"] is None


def test_a_run_is_the_net_that_its_export_takes() -> None:
    searched, again = made(DIGITS, 10, 8, 1), made(DIGITS, 10, 8, 1)
    with torch.no_grad():
        next(again.parameters()).add_(1.0)
    folder = finished_run(searched)
    more = {"training_id": "0123456789ab", "factors": {"trial": 1}, "budget": {"done": 32, "full": 32}}
    made_run(folder / "retrain", [net_row(6, DIGITS, kind="retrain", accuracy=0.91, **more)])
    save(again, folder / "retrain" / "weights" / "0123456789ab.safetensors")
    for text in ("mine", "mine:1"):
        found = find_weights(text)
        assert same(found.network.state_dict(), again.state_dict())
        assert (found.label, found.lineage["steps"]) == ("run mine, trial 1, retrained with seed 0", 32)
    shutil.rmtree(folder / "retrain")
    assert same(find_weights("mine:1").network.state_dict(), searched.state_dict())


def test_weights_that_have_changed_since_are_refused() -> None:
    net = made(DIGITS, 10, 8, 1)
    digest = save(net, Path("digest.safetensors"))
    assert digest == hashlib.sha256(Path("digest.safetensors").read_bytes()).hexdigest()[:12]
    folder = finished_run(net, runtime={"weights_sha256": digest})
    assert same(find_weights("mine:1").network.state_dict(), net.state_dict())
    file = folder / "weights" / f"{DIGITS.key}.safetensors"
    content = bytearray(file.read_bytes())
    content[-64:] = bytes(64)  # finite numbers, so nothing else notices
    file.write_bytes(content)
    for text in ("mine", "mine:1", "mine:2"):  # the last is its duplicate
        assert f"has changed since it was trained (SHA-256 {hashlib.sha256(content).hexdigest()[:12]}" in complaint(
            lambda text=text: find_weights(text)
        )


def test_weights_that_a_run_cannot_mean() -> None:
    folder = finished_run(made(DIGITS, 5, 8, 1))
    assert "run.json: has 10 classes, its weights are for 5" in complaint(lambda: find_weights("mine"))
    shutil.copy(saved(made()), folder / "weights" / f"{DIGITS.key}.safetensors")
    assert f"is of the net {NET.key}, not of {DIGITS.key}" in complaint(lambda: find_weights("mine"))


@pytest.mark.parametrize(
    "text", ["nothing", "nothing:3", "", ":", "mine:x", "mine:²", "mine:" + "9" * 5000, "x" * 5000]
)
def test_unknown_names_are_told_the_forms(text: str) -> None:
    finished_run(None)
    words = complaint(lambda: find_weights(text))
    assert "timm:NAME, FILE.safetensors or .pth, an exported folder, RUN, RUN:TRIAL" in words
    assert len(words) < 1000


def exported(weights: Network, described: bool, **changes: Any) -> Path:
    """An exported folder written by hand."""
    folder = Path("best")
    config = {"image_size": [8, 8], "in_chans": 1, "classes": CLASSES, "mean": [4.9], "std": [6.0], "data": "digits"}
    save(weights, folder / "weights.safetensors")
    if not described:
        save_file(weights.state_dict(), folder / "weights.safetensors")
    (folder / "genotype.json").write_text(DIGITS.to_json(), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")
    return folder


@pytest.mark.parametrize("described", [True, False])
def test_an_exported_folder(described: bool) -> None:
    net = made(DIGITS, 10, 8, 1)
    folder = exported(net, described)
    for text in ("best", "best/weights.safetensors"):
        found = find_weights(text)
        assert same(found.network.state_dict(), net.state_dict())
        assert (found.mean, found.std, found.classes, found.data) == ((4.9,), (6.0,), tuple(CLASSES), "digits")
    assert found.label == "file best/weights.safetensors"
    assert find_weights("best").lineage["weights"] == "export best"
    assert find_weights("best", str(folder / "genotype.json")).network.genotype == DIGITS
    assert "is of another net than --arch resnet18" in complaint(lambda: find_weights("best", "resnet18"))
    exported(made(DIGITS, 5, 8, 1), described)
    assert "config.json: has 10 classes, its weights are for 5" in complaint(lambda: find_weights("best"))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"mean": [1.0, 2.0]}, "has 2 mean, its weights are for 1"),
        ({"std": "wide"}, "std must be a list"),
        ({"image_size": None}, "image_size must be a list"),
    ]
    for changes, rule in wrong:
        exported(net, described, **changes)
        assert f"config.json: {rule}" in complaint(lambda: find_weights("best"))
    (folder / "config.json").write_text("[]", encoding="utf-8")
    assert "must be an object, got []" in complaint(lambda: find_weights("best"))
    exported(made(NETS["basic"], 10, 8, 1), described)
    complaint(lambda: find_weights("best"))


def test_a_file_and_its_architecture() -> None:
    net = made(zoo.get("vit_tiny_patch2"), 3, 8)
    described = saved(net)
    save_file(net.state_dict(), "plain.safetensors")
    Path("arch.json").write_text(net.genotype.to_json(), encoding="utf-8")
    for arch in ("vit_tiny_patch2", "arch.json"):
        assert same(find_weights("plain.safetensors", arch, 8).network.state_dict(), net.state_dict())
        assert same(find_weights(str(described), arch).network.state_dict(), net.state_dict())
        assert "--from-size" in complaint(lambda arch=arch: find_weights("plain.safetensors", arch))
    assert "is of the net" in complaint(lambda: find_weights(str(described), "resnet18"))
    assert "--arch" in complaint(lambda: find_weights("plain.safetensors"))
    assert "did you mean" in complaint(lambda: find_weights("plain.safetensors", "vit_tiny_patch3", 8))
    found = find_weights(str(described))
    assert (found.label, found.mean, found.classes, found.data) == ("file net.safetensors", None, None, None)
    net = made(zoo.get("resnet18", 32), 3, (32, 32))
    assert find_weights(str(saved(net)), "resnet18").network.image_size == (32, 32), "the zoo's net of the file's size"


def test_a_file_of_a_run_and_one_of_timms_net() -> None:
    net = made(DIGITS, 10, 8, 1)
    finished_run(net)
    save_file(net.state_dict(), "plain.safetensors")
    found = find_weights("plain.safetensors", "mine:1")
    assert (found.network.image_size, found.network.num_classes) == ((8, 8), 10)
    assert same(found.network.state_dict(), net.state_dict())
    ours = made(zoo.get("resnet18", 224), 3, 224, 3)
    assert find_weights(str(saved(ours)), "timm:resnet18").network.genotype.key == ours.genotype.key
    assert "is of the net" in complaint(lambda: find_weights("net.safetensors", "timm:resnetv2_18"))
    assert "trained weights" in complaint(lambda: find_weights("mine:0"))

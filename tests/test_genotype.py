"""Genotypes: every rule refused with its place, one key a net, JSON there and back."""

import copy
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alternas.archs import Encoder, Genotype, Head, InputError, Stage, Stem, Style, build, static_cost, zoo
from alternas.archs.stage import build_up
from alternas.spaces import SPACES, RandomChooser, get
from nets import NETS

GROUPED = Style("post", "group")
CIFAR, IMAGE, PATCHES = Stem("cifar", 16), Stem("none"), Stem("patchify", 16, 4)
MLP, BARE = Stage(msa=1, attention="transformer"), Encoder(position="none")


def net(*stages: Stage, stem: Stem = CIFAR, **parts: Any) -> Genotype:
    return Genotype(stem, stages, **parts)


def test_build_up_goes_backwards_from_the_end() -> None:
    assert [build_up(6, m) for m in range(4)] == [(), (5,), (3, 5), (1, 3, 5)]
    assert Stage("bottleneck", 4, msa=1).kinds == ("bottleneck", "bottleneck", "bottleneck", "msa")


@pytest.mark.whole
@pytest.mark.parametrize(("make", "words"), [
    (lambda: net(Stage(depth=3, msa=2)), ("stage 1", "depth >= 2 msa", "3", "2")),
    (lambda: net(Stage(), Stage(depth=0)), ("stage 2", "depth", "0")),
    (lambda: net(Stage(stride=2, msa=(0,))), ("stage 1", "cannot downsample")),
    (lambda: net(Stage(msa=(1, 1))), ("stage 1", "twice")),
    (lambda: net(Stage(msa=(2,))), ("stage 1", "place in msa", "2")),
    (lambda: net(Stage("basics")), ("stage 1", "block", "basics", "did you mean 'basic'")),
    (lambda: net(Stage(heads=True)), ("stage 1", "heads", "True")),
    (lambda: net(Stage(window=-1)), ("stage 1", "window", "-1")),
    (lambda: Encoder(embed_dim=100, heads=3), ("encoder", "heads must divide embed_dim", "100", "3")),
    (lambda: Encoder(mlp_ratio=float("nan")), ("encoder", "mlp_ratio", "nan")),
    (lambda: Stem("patchify", 8), ("stem", "patch", "0")),
    (lambda: Stem("bit", 48), ("stem", "32", "48")),
    (lambda: net(), ("stage or an encoder",)),
    (lambda: net(Stage(), head=Head("token")), ("head", "token", "encoder")),
    (lambda: zoo.alternet(depths=(2, 2), msa=(0,), heads=(1, 2)), ("depths 2", "msa 1")),
    (lambda: zoo.get("alternet5"), ("alternet5", "did you mean", "alternet50")),
    (lambda: net(Stage(attention="msb")), ("stage 1", "attention", "msb", "did you mean 'msa'")),
    (lambda: net(Stage(), Stage(mlp_ratio=0.0)), ("stage 2", "mlp_ratio", "0")),
    (lambda: net(Stage(per_head=1)), ("stage 1", "per_head", "1")),
    (lambda: net(Stage("bottleneck", 2, 8, msa=(0,)), stem=Stem("cifar", 18)), ("stage 1", "multiple of 4", "18")),
    (lambda: net(Stage(width=48), style=Style("post", "group")), ("stem", "multiple of 32", "16")),
    (lambda: net(Stage(width=48), stem=Stem("bit", 32), style=Style("post", "group")), ("stage 1", "32", "48")),
    (lambda: Style("before"), ("style", "order", "before")),
    (lambda: Style("pre", "layer"), ("style", "norm", "layer")),
    (lambda: net(Stage(), stem=Stem("none")), ("stem", "'none'", "encoder")),
    (lambda: net(encoder=None, stem=Stem("none")), ("stage or an encoder",)),
    (lambda: Encoder(qkv_bias=0), ("encoder", "qkv_bias", "0")),
    (lambda: Encoder(local=4), ("encoder", "local", "odd", "4")),
    (lambda: Encoder(local=1), ("encoder", "local", "at least 3", "1")),
    (lambda: Encoder(position="3d"), ("encoder", "position", "3d")),
    (lambda: Encoder(position_at="layer"), ("encoder", "position_at", "layer", "did you mean 'layers'")),
    (lambda: Encoder(position="relative"), ("encoder", "relative", "layers", "stem")),
    (lambda: Encoder(45, heads=3, position="2d"), ("encoder", "2d", "even", "45")),
    (lambda: Head(hidden=-1), ("head", "hidden", "-1")),
    (lambda: zoo.bit(18), ("bit", "depth", "18")),
    (lambda: Stem(width=10**5000), ("stem", "width", "16610 bits")),
    (lambda: Stem("c" * 10_000), ("stem", "unknown value", "...")),
    (lambda: Genotype(CIFAR, (Stage(), "x")), ("stages[1] must be an object", "'x'")),
    (lambda: Genotype(CIFAR, (Stage(),), "x"), ("encoder must be an object", "'x'")),
    (lambda: Genotype(None, (Stage(),)), ("stem must be an object", "None")),
    (lambda: build(net(Stage()), 0, 32), ("num_classes", "0")),
    (lambda: build(net(Stage()), 10, 32, dropout=None), ("dropout", "None")),
    (lambda: static_cost(net(Stage()), 2.5, 32), ("num_classes", "2.5")),
    (lambda: net(Stage()).check(32.0), ("image size", "32.0")),
    (lambda: Genotype.from_dict({1: 2, "a": 3}), ("genotype", "field: unknown value 1")),
    (lambda: zoo.vit("giant", 14), ("vit", "size", "giant")),
])  # fmt: skip
def test_broken_rules_are_named(make: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(("genotype", "size", "words"), [
    (net(Stage(msa=1, window=7)), 32, ("stage 1", "window 7", "32x32")),
    (net(Stage(), Stage(stride=2, msa=1, window=4)), (32, 36), ("stage 2", "window 4", "16x18")),
    (net(Stage(), encoder=Encoder(patch=64)), 32, ("encoder", "patch 64", "larger", "32x32")),
    (net(Stage(), Stage(stride=2, msa=1, window=32)), 32, ("stage 2", "window 32", "larger", "16x16")),
    (zoo.vit("tiny", 16), (32, 40), ("encoder", "patch 16", "32x40")),
    (Genotype(Stem("patchify", 8, 5), (Stage(),)), 32, ("stem", "patch 5", "32x32")),
    (net(Stage()), 0, ("image size", "0")),
    (net(stem=Stem("bit", 32), encoder=Encoder()), 1, ("stem", "group norm", "one value")),
    (net(Stage(width=32, stride=8), stem=Stem("cifar", 32), style=GROUPED), 8, ("stage 1", "32 channels", "1x1")),
])  # fmt: skip
def test_rules_about_maps_are_named(genotype: Genotype, size: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        genotype.check(size)
    for word in words:
        assert word in str(caught.value)


def test_two_spellings_have_one_key() -> None:
    counted, placed = net(Stage(depth=4, msa=2, heads=2)), net(Stage(depth=4, msa=(3, 1), heads=2))
    assert counted != placed
    assert counted.key == placed.key
    dormant = net(Stage(depth=4, heads=7, window=2, head_dim=8))
    assert dormant.key == net(Stage(depth=4)).key != counted.key
    ratio = net(Stage(), encoder=Encoder(48, 1, 3, 2.01))
    assert ratio.key == net(Stage(), encoder=Encoder(48, 1, 3, 2.0)).key
    assert ratio.canonical() == ratio.canonical().canonical()


def shapes(model: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(tensor.shape)) for name, tensor in model.state_dict().items()]


@pytest.mark.parametrize(("one", "two"), [
    (net(Stage(mlp_ratio=2.0, per_head=True, attention="msa_a")), net(Stage())),
    (net(Stage(msa=1, mlp_ratio=2.0)), net(Stage(msa=1))),
    (net(Stage(msa=1, per_head=True)), net(Stage(msa=1))),
    (net(Stage("mbconv", msa=(0, 1))), net(Stage(msa=(0, 1)))),
    (net(replace(MLP, block="bottleneck", width=16, msa=(0, 1))), net(replace(MLP, msa=(1, 0)))),
    (net(Stage("convnext"), stem=PATCHES, style=Style("post")), net(Stage("convnext"), stem=PATCHES)),
    (net(Stage(msa=(0, 1)), stem=Stem("bit"), style=Style("post")), net(Stage(msa=(0, 1)), stem=Stem("bit"))),
    (net(replace(MLP, mlp_ratio=2.001)), net(replace(MLP, mlp_ratio=2.0))),
    (net(Stage(), encoder=Encoder(depth=1, position_at="shared")), net(Stage(), encoder=Encoder(depth=1))),
    (net(encoder=replace(BARE, position_at="layers"), stem=IMAGE), net(encoder=BARE, stem=IMAGE)),
    (net(encoder=BARE, stem=Stem("none", 8, 3)), net(encoder=BARE, stem=IMAGE, style=Style("post", "group"))),
    (
        net(Stage(width=32), stem=Stem("imagenet", 32), style=Style("post", "group")),
        net(Stage(width=32), stem=Stem("bit", 32), style=Style("post", "group")),
    ),
])  # fmt: skip
def test_what_builds_the_same_net_has_one_key(one: Genotype, two: Genotype) -> None:
    assert one != two
    assert one.key == two.key
    first, second = (build(genotype, 10, 32) for genotype in (one, two))
    assert shapes(first) == shapes(second)


def test_different_nets_have_different_keys() -> None:
    named = [*NETS.values(), *(zoo.get(name, 224) for name in zoo.names())]
    assert len({genotype.key for genotype in named}) == len(named)


def test_keys_are_those_that_recorded_runs_hold() -> None:
    """Of the zoo at 224 px, and of 200 nets of each space at 32 px: a change here orphans weights and records.

    A space that samples other nets has its line in genotype_keys.json written again; the zoo's lines never change.
    """
    known = json.loads((Path(__file__).parent / "genotype_keys.json").read_text(encoding="utf-8"))
    assert {name: zoo.get(name, 224).key for name in known["zoo"]} == known["zoo"]
    for name, keys in known["spaces"].items():
        space = get(name, 32)
        assert [space.sample(RandomChooser(seed)).key for seed in range(200)] == keys.split(), name


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("size", [8, 32, 224])
def test_json_round_trip(space: str, size: int) -> None:
    chooser = RandomChooser(1)
    for _ in range(30):
        genotype = get(space, size).sample(chooser)
        back = Genotype.from_json(genotype.to_json())
        assert back == genotype
        assert back.key == genotype.key
        assert Genotype.from_dict(genotype.canonical().to_dict()).key == genotype.key


def corrupted(data: Any, chance: random.Random) -> Any:
    """The genotype with one value replaced, removed or added somewhere."""
    data = copy.deepcopy(data)
    at, path = data, []
    while isinstance(at, dict | list) and at and (not path or chance.random() < 0.8):
        name = chance.choice(sorted(at)) if isinstance(at, dict) else chance.randrange(len(at))
        path.append((at, name))
        at = at[name]
    holder, name = path[-1]
    deed = chance.randrange(3)
    if deed == 0:
        del holder[name]
    elif deed == 1 and isinstance(holder, dict):
        holder["surprise"] = 1
    else:
        holder[name] = chance.choice([-1, 0, 10**9, 1.5, "x", None, [], {}, True, [[1]], float("inf"), "basic", [0, 0]])
    return data


def test_corrupted_json_is_refused_or_means_what_it_says() -> None:
    chance, refused = random.Random(0), 0
    spaces = [get(name, 32) for name in ("all", "modern")]
    sources = [space.sample(RandomChooser(seed)).to_dict() for seed in range(20) for space in spaces]
    sources += [genotype.to_dict() for genotype in NETS.values()]
    for _ in range(1000):
        data = corrupted(chance.choice(sources), chance)
        try:
            genotype = Genotype.from_json(json.dumps(data))
            genotype.check(32)
        except InputError:
            refused += 1
            continue
        spelled = genotype.to_dict()
        for part in ("stem", "encoder", "head", "style"):
            given = data.get(part) or {}
            assert all(spelled[part][name] == value for name, value in given.items())
        for given, stage in zip(data.get("stages", []), spelled["stages"], strict=True):
            assert all(stage[name] == value for name, value in given.items())
        assert "surprise" not in json.dumps(data)
    assert refused > 500


def test_text_that_is_no_json() -> None:
    huge = '{"stem": {}, "stages": [{"mlp_ratio": 1' + "0" * 400 + "}]}"
    twice = '{"stem": {}, "stages": [{"block": "basic", "block": "mbconv"}]}'
    for text in ("", "{", "[]", "3", '{"stem": 1}', "[" * 100_000, huge, twice):
        with pytest.raises(InputError):
            Genotype.from_json(text)
    plain = net(Stage())
    assert Genotype.from_json(b"\xef\xbb\xbf" + plain.to_json().encode()) == plain, "with a byte order mark"


def test_family() -> None:
    plain = net(Stage())
    assert plain.family == "resnet"
    assert net(Stage(msa=1)).family == "alternet"
    assert replace(plain, encoder=Encoder()).family == "hybrid"
    assert zoo.vit("tiny", 16).family == "vit"
    assert net(Stage(msa=1, attention="transformer")).family == net(Stage("mbconv", msa=1)).family == "modern"


@pytest.mark.parametrize("name", NETS)
def test_every_net_round_trips(name: str) -> None:
    assert Genotype.from_json(NETS[name].to_json()) == NETS[name]
    assert Genotype.from_dict(NETS[name].canonical().to_dict()).key == NETS[name].key
    assert eval(repr(NETS[name])) == NETS[name], "its repr makes it again"


def test_a_repr_is_short() -> None:
    """What is at its default is left out; a cost shows totals, not the parts that they are of."""
    g = Genotype(Stem("cifar", 32), (Stage("basic", 2, 32), Stage("basic", 4, 64, stride=2, msa=1)), head=Head())
    stages = "(Stage('basic', 2, 32), Stage('basic', 4, 64, stride=2, msa=1))"
    assert repr(g) == f"Genotype(Stem('cifar', 32), {stages})"
    assert repr(replace(g, encoder=Encoder(96, 2), head=Head("token"), style=Style("post"))) == (
        f"Genotype(Stem('cifar', 32), {stages}, encoder=Encoder(96, 2, 3), head=Head('token'), "
        "style=Style('post', 'batch'))"
    )
    assert len(repr(zoo.get("alternet50", 224))) < 400
    cost = static_cost(g, 10, 32)
    assert repr(cost).startswith(f"Cost(params={cost.params}, macs={cost.macs}, ")
    assert len(repr(cost)) < 200
    assert cost.parts
    assert cost != replace(cost, parts=())

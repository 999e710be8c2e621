"""`WeightsSpec`: trained weights by name, timm:NAME, FILE.safetensors, an exported folder, RUN or RUN:TRIAL."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import torch
from msgspec import Meta
from safetensors.torch import save

from ...archs import Genotype, Network
from ...archs import timm as timm_nets
from ...archs.errors import InputError, OperationError
from ...archs.files import digest, file_digest
from ...archs.json_files import Amount, Number, read_json
from ...archs.layout import ImageSize, Map, as_map
from ...archs.timm.models import config_of
from ...archs.timm.weights_files import load_tensors, timm_pretrained
from ...archs.timm_net import TIMM
from ...archs.weights import WeightsFile, describe, open_weights, read
from ..render.describe_net import find_arch
from .nets import parse_run_spec, trained_twin
from .store import read_records
from .trained_weights import facts_of, select_net, trained_weights

FORMS = "timm:NAME, FILE.safetensors or .pth, an exported folder, RUN, RUN:TRIAL"


@dataclass(frozen=True)
class LoadedWeights:
    """A trained net and the facts of its training."""

    network: Network  # in training mode, at the image size that it was trained for
    label: str  # for people
    # mean, std: of the images that it was trained on, by channel, in their raw values (0 to 255 for pictures); None if
    # unknown
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    # their names, in the order of the logits; None if unknown. timm's are WordNet's (n01440764)
    classes: tuple[str, ...] | None
    data: str | None  # name of the data set; None if unknown
    # label ("weights"), first 12 digits of the "sha256" of the file, or of the net as one, and the optimiser "steps"
    # spent on the net and on what it started from, None if unknown
    lineage: dict[str, Any]
    white_level: float | None = None  # raw value of white in its images, 0 where there is none; None if unknown


@dataclass(frozen=True)
class WeightsSpec:
    """Weights as a command names them."""

    # timm:NAME, FILE.safetensors, an exported folder, RUN (the net that an export of it takes), or RUN:TRIAL
    # (retrained, if it was)
    text: str
    # what a file holds that does not say it (one that does is checked): a zoo name, a genotype's .json file, RUN:TRIAL,
    # or timm:NAME for timm's state dict
    arch: str = ""
    # of timm's net, or of a file that does not say it. The others keep their own: `resized` changes it.
    image_size: ImageSize | None = None

    def find(self) -> LoadedWeights:
        """The trained net.

        InputError if there is no such thing, or it is not what it should be; OperationError if timm's weights cannot be
        downloaded.
        """
        text, arch = self.text, self.arch
        size = None if self.image_size is None else as_map(self.image_size)
        if text.startswith(TIMM):
            self._takes_no_arch()
            return _from_timm(text.removeprefix(TIMM), size)
        if text.endswith(".safetensors") or os.path.isfile(text):
            return _from_file(Path(text), f"file {text}", arch, size)
        if os.path.isfile(inside := os.path.join(text, "weights.safetensors")):
            return _from_file(Path(inside), f"export {text}", arch, size)
        self._takes_no_arch()
        if size is not None:
            raise InputError(f"weights: --from-size says what a file is for; {text!r} knows its size, got {size}")
        return _from_run(text)

    def _takes_no_arch(self) -> None:
        if self.arch:
            raise InputError(f"weights: --arch says what a file holds; {self.text!r} is none, got --arch {self.arch}")


def _from_run(text: str) -> LoadedWeights:
    try:
        run, trial = parse_run_spec(text)
    except (InputError, OSError) as error:  # OSError: no file can have that name
        raise InputError(f"weights: {text!r:.200} is none of {FORMS} ({error!s:.300})") from None
    home, record = select_net(run, trial)
    facts, path = facts_of(home, record), trained_weights(home, record)
    network = read(path, Genotype.from_dict(record.genotype), as_map(facts["image_size"]))
    _check_facts(home / "run.json", facts, network)
    label = f"run {run.resolve().name}, trial {record.factors.get('trial', record.trial)}"
    label += f", retrained with seed {record.seed}" if home != run else ""
    record = trained_twin(read_records(home), record)
    steps = record.steps_in_all if "done" in record.budget else None
    return _loaded(network, label, facts | {"data": facts["name"]}, file_digest(path), steps)


def _from_file(path: Path, label: str, arch: str, size: Map | None) -> LoadedWeights:
    file, exported = open_weights(path, pickles=True), _exported(path.parent)
    own = describe(file)
    if arch.startswith(TIMM) and not own and not exported:
        return _from_timm_file(file, arch.removeprefix(TIMM), size)
    if own or exported:
        size = as_map((own or exported)["image_size"])
    genotypes = [exported["genotype"]] if exported else []
    if arch.startswith(TIMM):
        genotypes.append(_timm_genotype(arch.removeprefix(TIMM)))
    elif arch:
        genotype, scene = find_arch(arch, "" if size is None else f"{size[0]}x{size[1]}")
        genotypes.append(genotype)
        if ":" in arch and not arch.endswith(".json"):  # RUN:TRIAL knows its size
            size = scene.image_size
    if len({genotype.key for genotype in genotypes}) > 1:
        raise InputError(f"weights: {path}: genotype.json beside it is of another net than --arch {arch}")
    network = read(file, genotypes[0] if genotypes else None, size)
    if exported:
        _check_facts(path.parent / "config.json", exported, network)
    return _loaded(network, label, exported, file_digest(path))


class ExportFacts(TypedDict):
    """The checked parts of an export's config.json."""

    classes: list[str]
    mean: list[Number]
    std: list[Amount]
    image_size: Annotated[list[int], Meta(min_length=2, max_length=2)]
    white_level: NotRequired[Amount | None]


def _exported(folder: Path) -> dict[str, Any]:
    """Facts of an exported folder; empty if it is none."""
    net, config = folder / "genotype.json", folder / "config.json"
    if not (net.is_file() and config.is_file()):
        return {}
    facts = read_json(config, ExportFacts, Path.read_bytes)
    genotype = read_json(net, Genotype, Path.read_bytes)
    return facts | {"genotype": genotype, "image_size": as_map((facts["image_size"][0], facts["image_size"][1]))}


def _check_facts(path: Path, facts: Mapping[str, Any], network: Network) -> None:
    """Raise InputError unless classes, mean and std are as many as the net has classes and channels."""
    for name, count in (("classes", network.num_classes), ("mean", network.in_chans), ("std", network.in_chans)):
        if len(facts[name]) != count:
            raise InputError(f"weights: {path}: has {len(facts[name])} {name}, its weights are for {count}")


def _loaded(
    network: Network, label: str, facts: Mapping[str, Any], digest: str, steps: int | None = None
) -> LoadedWeights:
    mean, std, classes = (tuple(facts[name]) if facts.get(name) else None for name in ("mean", "std", "classes"))
    lineage = {"weights": label, "sha256": digest, "steps": steps}
    return LoadedWeights(network, label, mean, std, classes, facts.get("data"), lineage, facts.get("white_level"))


def _from_timm(name: str, size: Map | None) -> LoadedWeights:
    config = config_of(name)
    if not config.has_weights:
        raise InputError(f"timm has no weights for {name!r}")
    _timm_genotype(name, size)  # refused before anything is downloaded
    full = f"{config.architecture}.{config.tag}"
    try:
        model = timm_pretrained(name, image_size=size)
    except OperationError as error:
        raise OperationError(f"{error}; with a file of them: --from FILE --arch timm:{full}") from None
    network = timm_nets.convert(model)
    content = save({k: v.contiguous() for k, v in network.state_dict().items()})
    return _loaded(network, f"timm's {full}", _timm_facts(config, network), digest(content))


def _from_timm_file(file: WeightsFile, name: str, size: Map | None) -> LoadedWeights:
    """A file of timm's net. How it was trained is known if `name` has the tag of timm's weights."""
    config = config_of(name)
    head = config.classifier[0] if isinstance(config.classifier, tuple) else config.classifier  # distilled: two
    classes = (*_shape(file, f"{head}.weight"), 0)[0] or None  # None leaves it to timm
    channels = (*_shape(file, f"{config.first_conv}.weight"), 0, 0)[1] or None
    model = timm_nets.create(name, False, classes, channels, size)
    left = load_tensors(model, file, resize=False)
    network = timm_nets.convert(model)
    facts = _timm_facts(config, network) if "." in name else {}
    if left:  # the last layer knows no classes
        facts.pop("classes", None)
    return _loaded(network, f"file {file.path} as timm's {name}", facts, file_digest(file.path))


def _shape(file: WeightsFile, name: str) -> tuple[int, ...]:
    """Of a tensor, whatever its name begins with; () if there is none."""
    found = (tensor for other, tensor in file.tensors.items() if f".{other}".endswith(f".{name}"))
    return tuple(next(found, torch.empty(())).shape)


def _timm_genotype(name: str, size: Map | None = None) -> Genotype:
    return timm_nets.read(timm_nets.create(name, image_size=size))


def _timm_facts(config: Any, network: Network) -> dict[str, Any]:
    """Facts about timm's pretraining; its classes only if the head is still that one."""
    from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset

    facts: dict[str, Any] = {}
    if network.in_chans == len(config.mean):
        facts |= {"mean": [255 * value for value in config.mean], "std": [255 * value for value in config.std]}
    subset = infer_imagenet_subset(config.to_dict()) if network.num_classes == config.num_classes else None
    return facts | ({"data": subset, "classes": ImageNetInfo(subset).label_names()} if subset else {})

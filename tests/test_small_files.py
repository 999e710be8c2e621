"""Small files that ask for much memory or time: counts, headers and sizes are looked at before anything is laid out."""

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from alternas.archs import Encoder, Genotype, InputError, Stage, Stem, build
from alternas.archs.pictures import MAX_PIXELS
from alternas.archs.weights import MAX_DESCRIPTION, read, save
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.data.readers import npz, webdataset
from alternas.search.training.checkpoint import read_checkpoint

ROOM = 200  # MB: what refusing a file may take beyond what was loaded before
PEAK = """
import resource
from alternas.archs import InputError
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = most()
for call in {calls}:
    try:
        eval(call)
        print("taken")
    except InputError as error:
        print(error)
print(most() - before)
"""
LOAD = "from alternas.search.data.load import load\nfrom alternas.search.data.dataset import DataConfig\n"
READ = "from pathlib import Path\nfrom alternas.archs.weights import read\n"


pytestmark = pytest.mark.usefixtures("elsewhere")


def refused(imports: str, *calls: str) -> list[str]:
    """The lines that calls are refused with in a process of their own, which takes little more memory for them."""
    code = imports + PEAK.format(calls=calls)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *lines, grown = done.stdout.splitlines()
    assert float(grown) < ROOM, lines
    assert len(lines) == len(calls)
    return lines


@pytest.mark.slow
def test_a_deep_description_is_refused_before_its_net_is_laid_out() -> None:
    stages = [{"block": "mbconv", "depth": 1024, "width": 8}]
    deep = {
        "stages": {"stem": {"width": 8}, "stages": stages * 64},
        "stage": {"stem": {"width": 8}, "stages": stages},
        "encoder": {"stem": {"kind": "none"}, "encoder": {"embed_dim": 8, "depth": 1024, "heads": 1}},
    }
    for name, genotype in deep.items():
        facts = {"genotype": genotype, "image_size": 8, "in_chans": 3, "num_classes": 10}
        save_file({"a": torch.zeros(1)}, f"{name}.safetensors", {"alternas": json.dumps(facts)})
        assert os.path.getsize(f"{name}.safetensors") < 5000
    stages_line, *lines = refused(READ, *(f"read(Path('{name}.safetensors'))" for name in deep))
    assert "at most 1024 blocks in stages and encoder, got 65536" in stages_line
    assert all("its 1 tensors are no net of 1024 blocks" in line for line in lines)


def test_the_deepest_description_is_read() -> None:
    """64 stages of 16 blocks, each with its attention blocks by their places."""
    stages = tuple(Stage(depth=16, width=1, msa=tuple(range(16)), head_dim=1) for _ in range(64))
    deepest = Genotype(Stem("cifar", 1), stages)
    assert len(deepest.to_json()) < MAX_DESCRIPTION / 10
    net = Genotype(Stem("cifar", 4), (Stage(width=4),))
    save(build(net, 10, 8), Path("net.safetensors"))
    assert read(Path("net.safetensors")).genotype == net
    save_file({"a": torch.zeros(1)}, "long.safetensors", {"alternas": " " * MAX_DESCRIPTION + "{}"})
    with pytest.raises(InputError, match="its description has 1,000,002 characters, at most 1,000,000 are read"):
        read(Path("long.safetensors"))


def test_a_net_has_a_thousand_blocks_at_most() -> None:
    halves = (Stage(depth=512, width=4), Stage(depth=511, width=4))
    assert Genotype(Stem(), halves, Encoder(depth=1)).depth == 1024
    with pytest.raises(InputError, match="at most 1024 blocks in stages and encoder, got 1025"):
        Genotype(Stem(), halves, Encoder(depth=2))


@pytest.mark.slow
def test_many_fields_are_refused_at_once() -> None:
    """So many that looking each up among all others takes hours."""
    many = ", ".join(f'"f{number}": 0' for number in range(1_000_000))
    with pytest.raises(InputError, match="unknown field 'f0'"):
        Genotype.from_json("{" + many + "}")
    with pytest.raises(InputError, match=r"field 'f7' stands there twice"):
        Genotype.from_json("{" + many + ', "f7": 1}')


def bomb(path: str, shape: tuple[int, ...], **more: Any) -> None:
    """An .npz file of black images, written without holding them."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as whole, whole.open("x.npy", "w", force_zip64=True) as file:
        file.write(head.getvalue())
        block, left = bytes(2**24), int(np.prod(shape))
        for start in range(0, left, len(block)):
            file.write(block[: left - start])
    with zipfile.ZipFile(path, "a") as whole:
        for name, array in {"y": np.arange(shape[0]) % 2, **more}.items():
            held = io.BytesIO()
            np.save(held, array)
            whole.writestr(f"{name}.npy", held.getvalue())


@pytest.mark.slow
def test_arrays_are_refused_by_what_their_headers_say() -> None:
    bomb("large.npz", (80, 512, 512, 120))
    bomb("thin.npz", (80, 2048, 2048, 1))
    assert os.path.getsize("thin.npz") < 2**19
    large, thin = refused(LOAD, "load(DataConfig('large.npz'))", "load(DataConfig('thin.npz'))")
    assert "its arrays take more than 2 GiB of memory, 2.34 GiB; --loader memory reads them all the same" in large
    assert "x takes more than 100 times as much unpacked" in thin
    assert "become 335,544,320" in thin


def test_what_is_nearly_all_black_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "LARGE", 2**16)
    bomb("thin.npz", (20, 128, 128))
    with pytest.raises(InputError, match=r"100 times .* --loader memory reads them all the same"):
        load(DataConfig("thin.npz"))
    assert len(load(DataConfig("thin.npz", loader="memory")).train) == 12
    monkeypatch.setattr(npz, "MEMORY_LIMIT", 2**16)
    with pytest.raises(InputError, match=r"more than 6\.1e-05 GiB of memory"):
        load(DataConfig("thin.npz"))


@pytest.mark.parametrize("shape", [(10**15, 8, 8), (2**40, 2**40, 1), (10, 9, 8)])
def test_headers_that_say_more_than_the_file_holds(shape: tuple[int, ...]) -> None:
    bomb("short.npz", (10, 8, 8))
    with zipfile.ZipFile("short.npz") as whole:
        held = {info.filename: whole.read(info) for info in whole.infolist()}
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile("short.npz", "w") as whole:
        for name, content in (held | {"x.npy": head.getvalue() + bytes(640)}).items():
            whole.writestr(name, content)
    with pytest.raises(InputError, match=r"short\.npz is not a readable \.npz file \(ValueError\)"):
        load(DataConfig("short.npz"))


def black(path: str, side: int) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.new("1", (side, side)).save(path)


def test_pictures_of_too_many_pixels_are_broken_and_not_decoded() -> None:
    for number in range(12):
        black(f"set/{'ab'[number % 2]}/{number}.png", 16)
    black("set/a/large.png", 8200)  # Pillow itself takes up to 13,377
    black("set/b/huge.png", 20_000)
    (line,) = refused(LOAD, "load(DataConfig('set'))")
    assert "2 of 14 pictures cannot be read" in line
    assert f"has more than {MAX_PIXELS:,} pixels, the most that are read of one picture; shrink it first" in line


def sparse(path: str, last: tarfile.TarInfo) -> None:
    """A shard of seven samples; the last member of the seventh has a length that takes no room on disk."""
    picture = io.BytesIO()
    Image.new("L", (8, 8)).save(picture, "png")
    files = {f"{number}.png": picture.getvalue() for number in range(7)}
    files |= {f"{number}.cls": b"%d" % (number % 2) for number in range(7)}
    files.pop(last.name, None)
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        end = tar.offset
    with open(path, "r+b") as file:
        file.seek(end)
        file.write(last.tobuf(tarfile.GNU_FORMAT))
        file.truncate(end + 512 + max(0, last.size) + 1024)


LONG = {  # by what the error says: name, type and length of the last member
    "cannot be read as a tar file: a header of 17,179,869,184 bytes": ("x", tarfile.XHDTYPE, 2**34),
    "a header of 17,179,869,184 bytes; at most 1,048,576 are read": ("x", tarfile.GNUTYPE_LONGNAME, 2**34),
    "a header of -512 bytes": ("x", tarfile.XHDTYPE, -512),
    "the label of sample '6' has 17,179,869,184 bytes; at most 1,048,576 are read": ("6.cls", tarfile.REGTYPE, 2**34),
    "1 of 7 pictures cannot be read": ("6.png", tarfile.REGTYPE, 2**34),
}


def test_members_of_shards_are_refused_by_their_length() -> None:
    for number, (name, kind, size) in enumerate(LONG.values()):
        last = tarfile.TarInfo(name)
        last.size, last.type = size, kind
        sparse(f"{number}.tar", last)
    lines = refused(LOAD, *(f"load(DataConfig('wds/{number}.tar'))" for number in range(len(LONG))))
    for words, line in zip(LONG, lines, strict=True):
        assert words in line


def test_labels_nested_deep() -> None:
    with pytest.raises(InputError, match="is no whole number"):
        webdataset._label(Path("a.tar"), "0", {"json": (0, 200_000)}, io.BytesIO(b"[" * 200_000))


def test_a_packed_checkpoint_is_put_aside(caplog: pytest.LogCaptureFixture) -> None:
    torch.save({"a": torch.zeros(1000)}, "plain.pt")
    with zipfile.ZipFile("plain.pt") as plain, zipfile.ZipFile("packed.pt", "w", zipfile.ZIP_DEFLATED) as packed:
        for info in plain.infolist():
            packed.writestr(info.filename, plain.read(info))
    found = read_checkpoint(Path("plain.pt"), torch.device("cpu"))
    assert found is not None
    assert read_checkpoint(Path("packed.pt"), torch.device("cpu")) is None
    assert "packed, as torch writes none" in caplog.text
    assert Path("packed.pt.broken").exists()

"""Reads a file of `torch.save` in a process of its own: tensors alone, within limits of time and memory.

Run as a module with the names of the file and of a safetensors file to be written, it does so, or prints what is wrong.
Nothing but tensors is made from a pickle there (`weights_only`), and nothing of it reaches the process that asks.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from .errors import InputError

ZIP, PROTOCOLS = b"PK\x03\x04", tuple(b"\x80" + bytes([version]) for version in range(2, 6))  # of torch.save
MAX_HEADER = 100_000_000  # bytes of a header of safetensors
ORDER = "order"  # in the metadata of what is written: names of tensors as the pickle has them
# Where trainings keep a net among other things; averaged weights are those that are used.
NESTED = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "net")
MAX_NESTED = 4  # dictionaries in one another
MEMORY_FACTOR, SPARE_BYTES = 4, 2**30  # memory for a file: so many times its size, and this
START_SECONDS, BYTES_PER_SECOND = 120.0, 10e6  # for torch to be imported on a busy machine, and to read a file
GLOBAL = re.compile(r"GLOBAL (\S+)")


def is_pickle(path: Path) -> bool:
    """Whether a file begins as those of `torch.save` do, and not with the length of a header of safetensors."""
    with open(path, "rb") as file:
        begins = file.read(8)
    return begins.startswith(ZIP) or (begins.startswith(PROTOCOLS) and int.from_bytes(begins, "little") > MAX_HEADER)


@contextmanager
def unpickled(path: Path) -> Iterator[Path]:
    """A safetensors file, gone afterwards, with the tensors of a pickle; InputError if it is not that within limits."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "tensors.safetensors"
        command = [sys.executable, "-P", "-m", __name__, str(path.absolute()), str(target)]
        seconds = START_SECONDS + path.stat().st_size / BYTES_PER_SECOND
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"takes longer than {seconds:.0f} s to read") from None
        if not target.exists():
            said = done.stdout.strip().splitlines()
            raise InputError(said[-1] if said else f"ended its process with exit code {done.returncode}")
        yield target


def _state(whole: Any) -> dict[str, Any]:
    """The tensors of a net among what a training has kept, in their order."""
    for _ in range(MAX_NESTED):
        if not isinstance(whole, dict):
            break
        inner = next((whole[key] for key in NESTED if isinstance(whole.get(key), dict)), None)
        if inner is None:
            import torch

            return {str(name): value for name, value in whole.items() if isinstance(value, torch.Tensor)}
        whole = inner
    raise InputError("holds no tensors by names: save a net's state_dict()")


def _limit_memory(more: int) -> None:
    """Have the process fail where it asks for more than it has and this."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _convert(path: Path, target: Path) -> None:
    import torch
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    if Path("/proc/self/statm").exists():
        _limit_memory(MEMORY_FACTOR * path.stat().st_size + SPARE_BYTES)
    options = torch.serialization.safe_globals([argparse.Namespace])  # trainings keep theirs in one
    with options, open(path, "rb") as file:  # given the name, torch would judge by its ending
        whole = torch.load(file, map_location="cpu", weights_only=True)
    state = _state(whole)
    if odd := [name for name, value in state.items() if value.layout != torch.strided or value.is_quantized]:
        raise InputError(f"has sparse or quantized tensors, first {odd[0]!r:.80}")
    if not state:
        raise InputError("holds no tensors by names: save a net's state_dict()")
    plain = {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in state.items()}
    part = target.with_suffix(".part")
    save_file(plain, part, {ORDER: json.dumps(list(plain))})
    part.rename(target)


def main() -> None:
    """Convert a file, or say in a line why not."""
    path, target = map(Path, sys.argv[1:])
    try:
        _convert(path, target)
    except InputError as error:
        print(error)
    except UnpicklingError as error:
        found = GLOBAL.search(str(error))
        more = f"holds more than tensors ({found[1]}), which is not loaded: save a net's state_dict()" if found else ""
        print(more or "is no file of torch.save, or holds more than tensors")
    except MemoryError:
        print("needs more memory than a file of its size should")
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        print(f"cannot be read ({(str(error).splitlines() or [type(error).__name__])[0]:.200})")


if __name__ == "__main__":
    main()

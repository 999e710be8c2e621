"""Compiles the null device: a library that the loader puts before CUDA's own."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import torch

HERE = Path(__file__).parent
LIBRARIES = ("torch_cuda", "c10_cuda", "torch_python", "torch_cuda_linalg", "torch_nvshmem", "caffe2_nvrtc")
CUDAS = re.compile(r"(__)?(cuda|cublas|cusolver|cusparse|cufft|cudnn|cu)[A-Z]\w*")
HEADERS = (("nvidia/*/include", "driver_types.h"), ("triton/backends/nvidia/include", "crt/host_defines.h"))
REAL = {"cudnnGetVersion", "cudnnGetProperty"}  # which torch compares with what it was built for
MAKES = re.compile(r"Create(_v2)?$|Create\w*(Descriptor|Info)$|(Desc|Preference|Layout)Create$")
COMPUTES = re.compile(r"cublas(?!Lt|Set|Get|Create|Destroy)|cublasLtMatmul$")


def why_not() -> str:
    """Why the null device cannot be compiled here, in words; "" if it can."""
    if torch.version.cuda is None:
        return "this torch is built without CUDA"
    missing = [tool for tool in ("cc", "nm") if shutil.which(tool) is None]
    if missing:
        return f"no {' and no '.join(missing)} on this machine"
    return "" if len(_headers()) == len(HEADERS) else "CUDA's headers are not installed"


def build(folder: Path) -> Path:
    """Compile the null device into `folder`."""
    rest, library = folder / "rest.c", folder / "libcuda.so.1"
    rest.write_text("".join(_generated()), encoding="utf-8")
    major, _, minor = (torch.version.cuda or "").partition(".")
    version = f"-DCUDART_VERSION_OF_TORCH={int(major) * 1000 + int(minor) * 10}"
    include = [f"-I{folder}" for folder in _headers()]
    command = [
        "cc", "-O1", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name}", version, *include, "-o", str(library),
    ]  # fmt: skip
    subprocess.run([*command, str(HERE / "device.c"), str(rest)], check=True)
    return library


def _headers() -> list[Path]:
    """Folders of CUDA's headers, in torch's order: those of the runtime lack some, which Triton brings."""
    packages = Path(torch.__file__).parents[1]
    found = (next(packages.glob(f"{folder}/{file}"), None) for folder, file in HEADERS)
    return [path.parents[file.count("/")] for path, (_, file) in zip(found, HEADERS, strict=True) if path]


def _generated() -> Iterator[str]:
    """C functions for all of CUDA's that torch names and device.c does not define: they do nothing, and succeed."""
    defined = {match[0] for match in re.finditer(CUDAS, (HERE / "device.c").read_text(encoding="utf-8"))}
    yield "void *calloc(unsigned long, unsigned long);\nint null_cuda_launch(void);\n"
    for name in sorted(_named_by_torch() - defined - REAL):
        if MAKES.search(name):
            yield f"int {name}(void **made) {{ *made = calloc(1, 4096); return 0; }}\n"
        elif COMPUTES.match(name):
            yield f"int {name}(void) {{ return null_cuda_launch(); }}\n"
        else:
            yield f"int {name}(void) {{ return 0; }}\n"


def _named_by_torch() -> set[str]:
    """CUDA's functions that torch's libraries ask the loader for."""
    names = set[str]()
    for library in LIBRARIES:
        path = Path(torch.__file__).parent / "lib" / f"lib{library}.so"
        if path.exists():
            listed = subprocess.run(["nm", "-D", "-u", path], capture_output=True, text=True, check=True).stdout
            names |= {match[0] for match in re.finditer(CUDAS, listed)}
    return names

"""Runs functions of test modules on the null device, each in a fork of a process that has loaded what they need.

    LD_PRELOAD=.../libcuda.so.1 python tests/null_cuda/server.py

A line on standard input is a request, in JSON: a module's file, a function in it, its arguments, and what the
environment is to have, the settings of the null device among it. The answer is a line on standard output: the value
that the function returned, or its traceback.
"""

import importlib
import importlib.util
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
PRELOADED = (  # none that asks for cards as it is imported, as torch.utils.benchmark does: a fork could not use them
    *("pytest", "timm.optim", "alternas.search.training.loop", "alternas.search.supernet.trainer"),
    *("alternas.search.engine.doctor_gpu_checks", "alternas.search.engine.worker"),
    *("alternas.results.analysis.registry", "alternas.results.analysis_tools.inputs"),
)


def serve() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what functions print is no answer
    sys.path.insert(0, str(TESTS))
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        print(answered(line), file=answers, flush=True)
    os._exit(0)  # nothing is left to be tidied up, which takes seconds


def answered(line: str) -> str:
    """The answer to a request, of a fork."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reading)
        with os.fdopen(writing, "w", encoding="utf-8") as answer:
            answer.write(json.dumps(called(json.loads(line))))
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return text or json.dumps({"error": f"the process ended with {os.waitstatus_to_exitcode(status)}"})


def called(request: dict[str, Any]) -> dict[str, Any]:
    """The value that a function returns, or how it fails."""
    os.environ.update(request["environment"])
    warnings.filterwarnings("ignore", "Warning only once for all operators,  other operators may also be overridden")
    from null_cuda.kernels import replace_cudnn

    try:
        replace_cudnn()
        spec = importlib.util.spec_from_file_location("on_null_device", request["file"])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return {"value": getattr(module, request["function"])(*request["arguments"])}
    except BaseException:  # noqa: BLE001 - whatever it is, the test that asked says it
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    serve()

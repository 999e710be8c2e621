"""Milliseconds that a batch of one image takes in onnxruntime: for a device with Python, onnxruntime and numpy alone.

python bench.py MODEL.onnx [THREADS]
"""

import json
import statistics
import sys
import time

import numpy as np
import onnxruntime


def measure(model, threads=1, seconds=1.0):
    """The median over calls for so many seconds, as the JSON that alternas reads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    images = session.get_inputs()[0]
    feed = {images.name: np.zeros([1, *images.shape[1:]], np.float32)}
    for _ in range(5):
        session.run(None, feed)
    times, until = [], time.perf_counter() + seconds
    while len(times) < 10 or time.perf_counter() < until:
        began = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - began)
    return {"latency_ms": 1e3 * statistics.median(times)}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int((sys.argv[2:] or ["1"])[0]))))

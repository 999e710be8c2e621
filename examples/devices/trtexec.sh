#!/bin/sh
# TensorRT on an NVIDIA GPU or Jetson: trtexec.sh MODEL.onnx SHAPE, where SHAPE is {shape}, such as 3x224x224.
# It builds an engine, which takes a minute: raise --latency-timeout for large nets.
set -e
trtexec --onnx="$1" --shapes="images:1x$2" --useCudaGraph 2>&1 |
    sed -n 's/.*GPU Compute Time:.*median = \([0-9.]*\) ms.*/\1/p' | tail -n 1 | awk 'NF { print; found = 1 } END { exit !found }'

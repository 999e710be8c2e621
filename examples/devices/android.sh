#!/bin/sh
# TensorFlow Lite's benchmark_model on a phone: android.sh MODEL.tflite [THREADS]. Push the program to
# /data/local/tmp once. It prints microseconds: "Inference (avg): 14575.2"; the last line here is milliseconds.
set -e
adb get-state > /dev/null 2>&1 || exit 75 # no phone: alternas waits for it
adb push "$1" /data/local/tmp/model > /dev/null
adb shell /data/local/tmp/benchmark_model --graph=/data/local/tmp/model --num_threads="${2:-1}" 2>&1 |
    sed -n 's/.*Inference (avg): \([0-9.e+]*\).*/\1/p' | tail -n 1 | awk 'NF { printf "%.6f\n", $1 / 1000; found = 1 } END { exit !found }'

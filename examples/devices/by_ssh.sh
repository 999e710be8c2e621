#!/bin/sh
# onnxruntime on another machine: by_ssh.sh HOST MODEL. bench.py lies in the home folder there, once.
# ssh and scp end with 255 where the machine is not there: alternas then waits, and no net is blamed.
set -e
name=alternas-$$.onnx
scp -q -o BatchMode=yes "$2" "$1:/tmp/$name" || exit 255
ssh -o BatchMode=yes "$1" "python3 bench.py /tmp/$name; code=\$?; rm /tmp/$name; exit \$code"

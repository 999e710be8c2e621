"""Asks http_server.py: python http_client.py URL MODEL.onnx. Exit code 75 where nobody answers: alternas waits then."""

import sys
import urllib.error
import urllib.request
from pathlib import Path

NOBODY = 75  # EX_TEMPFAIL

url, model = sys.argv[1:3]
try:
    with urllib.request.urlopen(urllib.request.Request(url, Path(model).read_bytes())) as answer:
        print(answer.read().decode())
except urllib.error.HTTPError as error:  # the device answers: this model does not run there
    sys.exit(f"{error.code} {error.read().decode(errors='replace')}")
except (urllib.error.URLError, ConnectionError) as error:
    print(error, file=sys.stderr)
    sys.exit(NOBODY)

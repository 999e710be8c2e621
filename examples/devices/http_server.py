"""A service on the device: it takes a model by POST and answers with what bench.py measures, one model at a time.

python http_server.py [PORT]        # listens on this machine alone; put a tunnel or a proxy in front for others
"""

import subprocess
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

BENCH = Path(__file__).with_name("bench.py")
MOST_BYTES = 2**31


class Handler(BaseHTTPRequestHandler):
    """Answers with 200 and JSON, or with 422 and the reason where the model does not run."""

    def do_POST(self):
        size = int(self.headers.get("Content-Length", 0))
        if not 0 < size <= MOST_BYTES:
            self.send_error(413)
            return
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(self.rfile.read(size))
            file.flush()
            done = subprocess.run([sys.executable, str(BENCH), file.name], capture_output=True)
        body = done.stderr[-500:] if done.returncode else done.stdout
        self.send_response(422 if done.returncode else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", int((sys.argv[1:] or ["8080"])[0])), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()

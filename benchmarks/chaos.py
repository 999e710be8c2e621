"""One search on a real cluster of two nodes, while its driver, workers and a node are killed at random.

    python benchmarks/chaos.py              # 25 kills over 40 trials
    python benchmarks/chaos.py 6 12 7       # kills, trials, seed

Each kill is a -9. A driver that was killed is started again with the same command, a node is replaced by a new one.
Kills come when so many records are there, in an order drawn from the seed. At the end: is every record there once,
are all trained nets there, did the run end, is any process or actor left?
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

SPACE, NAME, BASELINES = "resnet", "chaos", 4  # baselines at most: few trials have fewer
KINDS = ("driver", "worker", "node")
WAIT = float(os.environ.get("CHAOS_WAIT", "600"))  # seconds for one record more; a loaded machine needs long


@dataclass
class Chaos:
    """A cluster, the driver on it, and every process that was seen below this one."""

    folder: Path
    trials: int
    cluster: Any = None
    second: Any = None
    driver: Any = None
    starts: int = 0
    seen: set[psutil.Process] = field(default_factory=set)
    others: set[psutil.Process] = field(default_factory=lambda: set(psutil.Process().children(recursive=True)))

    def open(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        self.add_node()
        self.start()

    def add_node(self) -> None:
        self.second = self.cluster.add_node(num_cpus=1)
        self.cluster.wait_for_nodes()

    def start(self) -> None:
        """The driver: the same command each time."""
        words = [
            "search",
            "--alone",
            SPACE,
            "--data",
            "digits",
            "--address",
            self.cluster.address,
            "--trials",
            str(self.trials),
            "--name",
            NAME,
        ]
        words += ["--epochs", "4", "--strategy", "random", "--scheduler", "none", "--json"]
        command = [sys.executable, "-m", "alternas", *words]
        with open(self.folder / "err", "a", encoding="utf-8") as err:
            self.driver = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=err)
        self.starts += 1

    def look(self) -> list[psutil.Process]:
        """The processes that hold one of our actors now; all processes are noted."""
        self.seen |= set(psutil.Process().children(recursive=True)) - self.others
        return [process for process in self.seen if "ray::Worker" in _title(process)]

    def records(self) -> list[dict[str, Any]]:
        """Whole lines alone, and no events of trials under way."""
        path = self.folder / "runs" / NAME / "records.jsonl"
        rows = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []
        return [row for row in rows if "event" not in row]

    def wait_for(self, what: Callable[[], Any]) -> Any:
        """Until it is so, or the driver has ended."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            self.look()
            if (found := what()) or self.driver.poll() is not None:
                return found
            time.sleep(0.5)
        workers, records = len(self.look()), len(self.records())
        raise AssertionError(f"nothing happened in {WAIT:.0f} s; {workers} workers, {records} records")

    def kill(self, kind: str, draw: random.Random) -> None:
        if kind == "driver":
            self.driver.kill()
            self.driver.wait()
            self.start()
        elif kind == "worker":
            self.wait_for(self.look)
            victims = sorted(self.look(), key=lambda process: process.pid)
            if victims:
                draw.choice(victims).kill()
        else:
            self.cluster.remove_node(self.second, allow_graceful=False)
            self.add_node()

    def close(self) -> list[str]:
        """End all that was started; return the names of what did not end with the cluster."""
        if self.driver and self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait()
        if self.cluster:
            self.look()
            self.cluster.shutdown()
        _, left = psutil.wait_procs(self.seen, timeout=60)
        names = [_title(process) for process in left]
        for process in left:
            process.kill()
        return names


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:  # it has ended
        return ""


def chaos(kills: int, trials: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kill so often while so many nets are searched; return what was killed, and what is wrong at the end."""
    draw, one = random.Random(seed), Chaos(folder, trials)
    order = (list(KINDS) * kills)[:kills]
    draw.shuffle(order)
    try:
        one.open()
        for number, kind in enumerate(order, start=1):
            due = number * (trials + BASELINES) // (kills + 1)
            one.wait_for(lambda due=due: len(one.records()) >= due)
            one.kill(kind, draw)
        one.wait_for(lambda: one.driver.poll() is not None)
        code = one.driver.poll()
        actors = _still(one)
        wrong = judged(one.folder / "runs" / NAME, one.records(), trials)
    finally:
        left = one.close()
    wrong |= {"exit code": code} if code else {}
    wrong |= {name: found for name, found in (("actors left", actors), ("processes left", left)) if found}
    statuses = dict(Counter(record["status"] for record in one.records()))
    killed = dict(Counter(order))
    return {
        "seed": seed,
        "trials": trials,
        "killed": killed,
        "drivers": one.starts,
        "records": statuses,
        "wrong": wrong,
    }


def _still(one: Chaos) -> int:
    """Actors that hold a worker half a minute after their driver has ended."""
    end = time.monotonic() + 30
    while one.look() and time.monotonic() < end:
        time.sleep(0.5)
    return len(one.look())


def judged(run: Path, records: list[dict[str, Any]], trials: int) -> dict[str, Any]:
    """What is wrong with a finished run; empty if nothing is."""
    trained = [record for record in records if record["status"] == "ok"]
    counts = Counter(record["kind"] for record in trained)
    twice = [trial for trial, n in Counter(record["trial"] for record in records).items() if n > 1]
    same = [key for key, n in Counter(record["key"] for record in trained).items() if n > 1]
    gone = [r["trial"] for r in trained if not (run / "weights" / f"{r['key']}.safetensors").exists()]
    begun = [path.name for path in (run / "checkpoints").glob("*") if "broken" not in path.name]
    wrong = {"recorded twice": twice, "trained twice": same, "weights missing": gone, "checkpoints left": begun}
    if counts["search"] != trials or not 0 < counts["baseline"] <= BASELINES:
        wrong["counts"] = dict(counts)
    return {name: found for name, found in wrong.items() if found}


def main() -> None:
    from machine import keep, options, sized

    parser = options(__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=sized(25, 1))
    parser.add_argument("trials", type=int, nargs="?", default=sized(40, 2))
    parser.add_argument("seed", type=int, nargs="?", default=0)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        found = chaos(asked.kills, asked.trials, asked.seed, Path(scratch))
    keep("chaos", found | {"minutes": round((time.monotonic() - began) / 60, 1)})
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()

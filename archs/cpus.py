"""How many CPUs this process may use: those that it is bound to, within the quota of its control groups."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

PROC = Path("/proc/self")


def usable_cpus() -> int:
    """CPUs of its affinity (`taskset`, SLURM) that a cgroup's quota (`docker run --cpus`) allows; at least one."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([bound, *_quotas()])))


def _quotas() -> Iterator[float]:
    """CPUs that each control group of this process allows, and each one above it, for versions 1 and 2."""
    for folder in _groups():
        with suppress(OSError):  # one of the other version, or one that is not mounted here
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
            if quota != "max":
                yield int(quota) / int(period)
        with suppress(OSError):
            quota = int((folder / "cpu.cfs_quota_us").read_text(encoding="utf-8"))
            if quota > 0:
                yield quota / int((folder / "cpu.cfs_period_us").read_text(encoding="utf-8"))


def _groups() -> Iterator[Path]:
    """Folders of the control groups that share out CPUs to this process, up to the top ones that are mounted."""
    if not (PROC / "cgroup").exists():
        return
    own = dict[str, PurePosixPath]()  # path of this process's group, by controller; "" is version 2
    for line in (PROC / "cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), PurePosixPath(path))
    for line in (PROC / "mountinfo").read_text(encoding="utf-8").splitlines():
        mount, _, system = line.partition(" - ")
        root, top = (field.replace("\\040", " ") for field in mount.split()[3:5])
        kind, _, options = system.split(" ", 2)
        controller = {"cgroup2": "", "cgroup": "cpu"}.get(kind)
        if controller not in own or (controller and controller not in options.split(",")):
            continue
        path = own[controller]  # in a container it may be the host's, of which the group's own folder is mounted
        below = path.relative_to(root) if path.is_relative_to(root) else PurePosixPath()
        yield from (Path(top) / part for part in (below, *below.parents))

"""What a Ray cluster has free and what waits for a place on it, asked of Ray's head, which needs no dashboard."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from ray._private import worker as ray_worker
from ray.autoscaler.sdk import request_resources
from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.core.generated.autoscaler_pb2 import NodeStatus  # pyright: ignore[reportAttributeAccessIssue]
from ray.exceptions import RayError

from .resources import Node
from .scaling import ClusterLoad

log = logging.getLogger("alternas")


def cluster_load() -> ClusterLoad | None:
    """What the cluster has, has free, and is asked for; None if its head does not answer now."""
    try:
        state = get_cluster_resource_state(ray_worker.global_worker.gcs_client)  # pyright: ignore[reportAttributeAccessIssue]
    except RayError as error:
        log.warning("the cluster's head does not say what is free: %s", error)
        return None
    nodes = [node for node in state.node_states if node.status != NodeStatus.DEAD]
    free = [{} if node.status == NodeStatus.DRAINING else dict(node.available_resources) for node in nodes]
    return ClusterLoad([dict(node.total_resources) for node in nodes], free, [*_waiting(state)])


def _waiting(state: Any) -> Iterator[Node]:
    """What each waiting task, actor, or part of a placement group asks for."""
    for demand in state.pending_resource_requests:
        yield from [dict(demand.request.resources_bundle)] * demand.count
    for gang in state.pending_gang_resource_requests:
        yield from (dict(part.resources_bundle) for part in gang.requests)


def wish_for(needs: Node, count: int) -> None:
    """Tell an autoscaler how many workers the cluster should have room for; any other cluster ignores it."""
    request_resources(bundles=[dict(needs)] * count)

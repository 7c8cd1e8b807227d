"""Run by test_ray.py in a process of its own: a sweep and a search on a real local cluster, a worker killed on the way.

Two worker nodes of one core each; the driver has none. One node is killed (not stopped) while its blocks run.
"""

import time

import numpy as np
import ray
from ray.cluster_utils import Cluster

from rooflm import search_infer
from rooflm.api import INFER
from rooflm.explore import Space, grid, make_task
from rooflm.sweep.axes import find_axes
from rooflm.sweep.sweep import GridJob, Store, blocks, run
from rooflm.sweep.workers import spread

REQUEST = {"model": "llama-7b", "gpu": ["a100-sxm-80gb", "h100-sxm-80gb"], "batch": list(range(1, 65)),
           "output": list(range(16, 513, 16)), "tp": [1, 2, 4]}  # fmt: skip
OUTPUTS = ("ttft_s", "tpot_s", "latency_s", "memory_bytes", "fits")


def slow_infer_flat(**arguments):
    """As INFER.flat, slow enough that a node dies with blocks in hand."""
    time.sleep(0.1)
    return INFER.flat(**arguments)


def cores_become(number: int) -> bool:
    """Whether the cluster has so many cores, now or soon: a busy machine is slow to notice a start or a death."""
    return any(ray.cluster_resources().get("CPU") == number or time.sleep(0.2) for _ in range(900))


def main() -> None:
    axes, fixed = find_axes(REQUEST)
    expected = run(INFER.flat, axes, fixed, OUTPUTS, block=400)
    noticed = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}  # a death, else after 15 s
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": noticed}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    first, _ = cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    assert cores_become(2), "two workers were not started"
    store = Store(axes)
    seen = 0
    for block, values in spread(GridJob(slow_infer_flat, tuple(axes), fixed, OUTPUTS), blocks(axes, 400), "ray"):
        store.put(block, values)
        seen += 1
        if seen == 3:  # both have blocks in hand
            cluster.remove_node(first, allow_graceful=False)
    assert cores_become(1), "the worker was not killed"
    got = store.views()
    assert seen == len(blocks(axes, 400)) > 20
    for name in OUTPUTS:
        assert np.array_equal(got[name], expected[name]), name
    case = {"gpu": "a100-sxm-80gb", "gpus": 4, "batch": [1, 8, 64], "efficiency": "0.7,0.9"}
    here, there = search_infer("llama-7b", **case), search_infer("llama-7b", on="ray", **case)
    assert here == there
    task = make_task("infer", "llama-2-13b", gpus=2, batch=8, prompt=256, output=32)
    space = Space("a100", ("n7", "n5"), ("hbm2e", "hbm3e"), ("nvlink3+hdr", "nvlink5+ndr"))
    near, far = grid(task, space), grid(task, space, on="ray")
    assert all(np.array_equal(near[k], far[k]) for k in near), "exploration of hardware"
    ray.shutdown()
    cluster.shutdown()
    print("the same to the bit")


if __name__ == "__main__":
    main()

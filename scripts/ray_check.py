#!/usr/bin/env python3
"""dllm.ray on a cluster of two nodes on this machine, one of which is killed at half time: by hand, as Ray is large.

    python3 -m venv build/ray && build/ray/bin/pip install 'ray[data]' numpy
    PYTHONPATH=build/release/python build/ray/bin/python scripts/ray_check.py [--dllm build/release/dllm]

A dataset is answered, and points are swept by dllm.ray.sweep() and by scripts/npu_sweep_ray.py. The results must be those
of one process alone. Prints what was compared, with its seconds.
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import dllm.ray
import ray
from dllm import npu
from ray.cluster_utils import Cluster

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import npu_sweep_ray

QUESTION = "Ben has {} pens. Ben gets {} more. Then Ben loses 5. How many pens does Ben have now?"
SPEC = """name = "check"
model = "llada-8b"
[device]
base = "dart-2048"
"array.blen" = [16, 32, 64]
"clock.ghz" = [0.6, 0.8, 1.0]
[workload]
batch = [1, 2, 4, 8, 16, 32]
context = [128, 256, 512, 1024]
"""


@contextlib.contextmanager
def two_nodes():
    """A cluster whose second node is given to the caller, who may kill it."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 200 << 20})
    second = cluster.add_node(num_cpus=1, object_store_memory=200 << 20)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


def kill_after(cluster, node, condition):
    """Kills the node, not gracefully, when the condition is true; the thread that waits for it."""
    def wait():
        while not condition():
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)
        print("the second node was killed", flush=True)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def slowed(row, marks):
    """A row of the dataset; leaves a mark, so that the check knows how far the job is."""
    time.sleep(0.02)
    pathlib.Path(marks, str(row["number"])).touch()
    return row


def answers(count):
    questions = [{"number": i, "prompt": QUESTION.format(10 + i % 17, i % 7)} for i in range(count)]
    model = dllm.Model.load(threads=1)
    alone = {one["number"]: model.generate(one["prompt"], length=64).text for one in questions}
    with tempfile.TemporaryDirectory() as marks, two_nodes() as (cluster, second):
        data = ray.data.from_items(questions, override_num_blocks=16).map(slowed, fn_kwargs={"marks": marks}, num_cpus=0.1)
        start = time.monotonic()
        killer = kill_after(cluster, second, lambda: len(os.listdir(marks)) > count // 2)
        made = dllm.ray.generate(data, length=64, models=(1, 2), cpus=0.5, threads=1, batch=4).take_all()
        seconds = time.monotonic() - start
        killer.join()
        nodes = sum(node["Alive"] for node in ray.nodes())
    assert nodes == 1, nodes
    assert {one["number"]: one["answer"] for one in made} == alone and len(made) == count
    print(f"{count} answers of a dataset, one of two nodes killed: those of generate() alone; {seconds:.1f} s", flush=True)


def marked(points, at):
    """The points; asking for the second half sets the event."""
    class Points(list):
        def __getitem__(self, key):
            if isinstance(key, slice) and key.start >= len(self) // 2:
                at.set()
            return super().__getitem__(key)

    return Points(points)


def designs():
    points = [{"array.blen": blen, "workload.batch": batch, "workload.context": context}
              for blen in (16, 32, 64, 7) for batch in range(1, 33) for context in (128, 256, 512)]
    design = npu.Design("llada-8b", "dart-2048")
    alone = []
    for point in points:
        try:
            alone.append({**point, **design.evaluate(point), "error": ""})
        except dllm.Error as error:
            alone.append({**point, "error": str(error)})
    with two_nodes() as (cluster, second):
        start, half = time.monotonic(), threading.Event()
        killer = kill_after(cluster, second, half.is_set)
        made = dllm.ray.sweep("llada-8b", "dart-2048", marked(points, half), piece=8)
        seconds = time.monotonic() - start
        killer.join()
    assert made == alone
    print(f"{len(points)} points of dllm.ray.sweep(): those of npu.Design alone; {seconds:.1f} s", flush=True)


def sweep_script(program):
    with tempfile.TemporaryDirectory() as folder, two_nodes() as (cluster, second):
        spec, alone, table = (pathlib.Path(folder) / name for name in ("spec.toml", "alone.csv", "all.csv"))
        spec.write_text(SPEC)
        subprocess.run([program, "npu", "sweep", spec, "--csv", alone], check=True, capture_output=True)
        start = time.monotonic()
        killer = kill_after(cluster, second, lambda: time.monotonic() > start + 3)
        sys.argv = ["npu_sweep_ray.py", str(spec), "--csv", str(table), "--dllm", program, "--piece", "6",
                    "--address", cluster.address]
        npu_sweep_ray.main()
        seconds = time.monotonic() - start
        killer.join()
        assert table.read_text() == alone.read_text()
        lines = len(table.read_text().splitlines()) - 1
    print(f"{lines} points of npu_sweep_ray.py: the file of `dllm npu sweep`; {seconds:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dllm", default="build/release/dllm")
    parser.add_argument("--answers", type=int, default=400)
    parser.add_argument("--only", choices=("answers", "designs", "sweep"))
    args = parser.parse_args()
    if args.only in (None, "answers"):
        answers(args.answers)
    if args.only in (None, "designs"):
        designs()
    if args.only in (None, "sweep"):
        sweep_script(str(pathlib.Path(args.dllm).resolve()))


if __name__ == "__main__":
    main()

"""Two ranks in two network namespaces with 1 Gbit/s between them, as two machines on a switch.

    python3 ranks_network_test.py PATH/TO/dllm [unittest arguments]

Needs root, `ip` and `tc`: where they are not, or not permitted, the tests are skipped and say so.
"""

import json
import os
import shutil
import subprocess
import sys
import unittest

from cli_case import DLLM, clean_environment
from ranks_case import HAS_RANKS, MODELS, TINY, RanksCase

FIRST, SECOND = f"dllm-{os.getpid()}-a", f"dllm-{os.getpid()}-b"
LINK = {FIRST: "10.77.0.1", SECOND: "10.77.0.2"}
RATE = "1gbit"


def system(*words):
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise unittest.SkipTest(f"no network namespaces here: {' '.join(words)}: {result.stderr.strip()}")


def in_namespace(name):
    return ["ip", "netns", "exec", name]


@unittest.skipUnless(HAS_RANKS, "this build has no ranks on other machines (libzmq3-dev)")
@unittest.skipUnless(sys.platform == "linux" and shutil.which("ip") and shutil.which("tc"), "ip and tc (iproute2) are not installed")
class TwoMachines(RanksCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(cls.remove)
        for name in LINK:
            system("ip", "netns", "add", name)
        system("ip", "link", "add", "eth-dllm", "netns", FIRST, "type", "veth", "peer", "name", "eth-dllm", "netns", SECOND)
        for name, address in LINK.items():
            system(*in_namespace(name), "ip", "address", "add", f"{address}/24", "dev", "eth-dllm")
            for device in ("lo", "eth-dllm"):
                system(*in_namespace(name), "ip", "link", "set", device, "up")
            system(*in_namespace(name), "tc", "qdisc", "add", "dev", "eth-dllm", "root", "tbf", "rate", RATE, "burst",
                   "128kb", "latency", "50ms")
        cls.key = cls.dir / "key"
        cls.key.write_text("a secret\n")
        cls.key.chmod(0o600)

    @classmethod
    def remove(cls):
        for name in LINK:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def first(self, *args):
        result = subprocess.run([*in_namespace(FIRST), DLLM, *map(str, args)], capture_output=True, text=True,
                                timeout=600, env=clean_environment(), check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def group(self, *args):
        worker = self.worker("--key-file", self.key, *args, host=LINK[SECOND], prefix=in_namespace(SECOND))
        return worker, ["--backend", "ranks", "--workers", worker.address, "--workers-key", self.key, "-t", "1"]

    def crossed(self):
        """Bytes that have crossed the link."""
        paths = ("tx_bytes", "rx_bytes")
        folder = "/sys/class/net/eth-dllm/statistics/"
        out = subprocess.run([*in_namespace(FIRST), "cat", *(folder + p for p in paths)], capture_output=True, text=True,
                             check=True).stdout
        return sum(map(int, out.split()))

    def test_logits_are_those_of_one_machine(self):
        for model in (TINY, MODELS / "tri-f16.gguf"):
            words = ["logits", "-m", model, "--tokens", "1,2,3,4,5", "-o"]
            alone = self.dir / "alone.f32"
            self.ok(*words, alone, "-t", "1")
            for split in ("outputs", "rows", "layers"):
                there = self.dir / f"{split}.f32"
                _, ranks = self.group("-m", model)
                self.first(*words, there, *ranks, "--split", split)
                self.assertEqual(there.read_bytes(), alone.read_bytes(), f"{model.name} {split}")

    def test_weights_cross_once(self):
        model = MODELS / "tri-f16.gguf"
        cache = self.dir / "cache"
        words = ["run", "-m", model, "Once upon a time", "-o", "json"]
        expected = json.loads(self.ok(*words, "-t", "1").stdout)["text"]
        crossed = []
        for _ in range(2):
            before = self.crossed()
            worker, ranks = self.group("--cache", cache)
            answer = json.loads(self.first(*words, *ranks, "--split", "outputs"))
            self.assertEqual(answer["text"], expected)
            worker.finish()
            crossed.append(self.crossed() - before)
        kept = [p for p in cache.iterdir() if p.suffix == ".gguf"]
        self.assertEqual(len(kept), 1)
        part = kept[0].stat().st_blocks * 512
        self.assertLess(part, model.stat().st_size * 0.75)
        self.assertGreater(crossed[0] - crossed[1], 0.8 * part)

    def test_rows_of_grouped_queries_move_a_megabyte(self):
        """Dream-7B's shape: its 28 layers exchange seven times what four of them do, and what the LM head reads once."""
        layers, cut, width, rows = 28, 4, 3584, 32
        model = self.dir / "dream.gguf"
        self.ok("make-model", "--shape", "dream-7b", "--layers", cut, "--vocab", 2048, "--type", "Q4_0", "-o", model)
        words = ["bench", "--ranks", "-m", model, "--split", "rows", "-r", 32, "-c", 32, "--no-peak", "-o", "json"]

        def received(scored):
            _, ranks = self.group("-m", model, "--stay")
            result = json.loads(self.first(*words, *ranks, "--scored", scored))
            return [r for r in result if r["test"] == "ranks"]

        before = self.crossed()
        records = received("none")
        total = self.crossed() - before
        self.assertEqual(len(records), 2)
        for record, scored in zip(records, received("all"), strict=True):
            kv, head = record["received_mb"] * layers / cut, scored["received_mb"] - record["received_mb"]
            print(f"rank {record['rank']} of Dream-7B's shape receives {kv + head:.2f} MB in a step of 32 rows; "
                  f"{record['exchange_mbps']:.0f} MB/s, {record['latency_us']:.0f} us", file=sys.stderr)
            self.assertAlmostEqual(kv, layers * rows / 2 * 2 * 512 * 2e-6, delta=0.02)  # K and V of 4 heads in F16
            self.assertAlmostEqual(head, rows / 2 * width * 1.125e-6, delta=0.01)  # codes, and a scale of every 32
            self.assertLessEqual(kv + head, 1.0)
        # What the connection says: both directions of the steps, the measurement of the link, and what frames add.
        steps = records[0]["repetitions"] + 2
        self.assertLess(total, 1.2 * steps * sum(r["received_mb"] for r in records) * 1e6 + 40e6)


if __name__ == "__main__":
    unittest.main()

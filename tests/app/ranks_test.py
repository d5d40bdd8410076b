"""A model on several ranks: `dllm worker` and `--backend ranks`, what they refuse, and strangers at a worker's port.

    python3 ranks_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import unittest

from cli_case import DLLM, clean_environment, run, sanitized
from ranks_case import HAS_MPI, HAS_RANKS, MODELS, MPIRUN, TINY, WAIT_S, RanksCase, ranks

PROMPT = "Once upon a time"


@unittest.skipUnless(HAS_RANKS, "this build has no ranks on other machines (libzmq3-dev)")
class Ranks(RanksCase):
    def answer(self, *args):
        return self.ok("run", *args, PROMPT, "-o", "json")

    def tokens(self, *args):
        answer = json.loads(self.answer(*args).stdout)
        return answer["text"], answer["steps"] if "steps" in answer else None

    def test_answers_are_those_of_one_process(self):
        for method in (["--seed", "3", "--temperature", "0.7"], ["--algorithm", "threshold", "--cache", "prefix"],
                       ["--algorithm", "freedave", "--cache", "dual"], ["--algorithm", "order-token"]):
            expected = self.tokens("-t", "1", *method)
            for count, split in ((1, "outputs"), (2, "outputs"), (3, "rows"), (1, "layers")):
                workers = self.workers(count)
                self.assertEqual(self.tokens(*ranks(workers, "--split", split), *method), expected,
                                 f"{split} {count} {method}")
                for worker in workers:
                    code, messages = worker.finish()
                    self.assertEqual((code, messages), (0, ""))

    def test_quantized_experts_and_causal_models(self):
        tri = MODELS / "tri-f16.gguf"
        expected = self.tokens("-m", tri, "-t", "1")
        for split in ("outputs", "rows", "layers"):
            workers = self.workers(2, "-m", tri)
            self.assertEqual(self.tokens("-m", tri, *ranks(workers, "--split", split)), expected, split)

    def test_auto_says_what_it_chose_and_why(self):
        workers = self.workers(1)
        result = self.answer(*ranks(workers))
        self.assertRegex(result.stderr, r"--split auto chose (rows|outputs|layers), for a step of 32 rows: "
                                        r"rows .* ms of work and .* ms of exchange, outputs .*, layers .*MB/s")

    def test_a_worker_that_stays_serves_the_next(self):
        workers = self.workers(1, "--stay")
        first = self.tokens(*ranks(workers, "--split", "rows"))
        self.assertEqual(self.tokens(*ranks(workers, "--split", "outputs")), first)
        self.assertIsNone(workers[0].process.poll())

    def test_keys(self):
        key, other, open_key = self.dir / "key", self.dir / "other", self.dir / "open"
        for path, text in ((key, "a secret\n"), (other, "another\n"), (open_key, "a secret\n")):
            path.write_text(text)
            path.chmod(0o600)
        open_key.chmod(0o644)
        workers = self.workers(1, "--key-file", key, "--stay")
        line = self.fails(3, "run", *ranks(workers), PROMPT)
        self.assertIn("key", line)
        line = self.fails(3, "run", *ranks(workers), "--workers-key", other, PROMPT)
        self.assertIn("does not know the key", line)
        self.assertIn("chmod 600", self.fails(2, "run", *ranks(workers), "--workers-key", open_key, PROMPT))
        self.answer(*ranks(workers), "--workers-key", key)
        self.assertIn("only ranks on this machine", self.fails(2, "worker", "--listen", "0.0.0.0:0"))

    def test_another_model_or_arithmetic_is_refused_before_the_first_step(self):
        workers = self.workers(1)
        line = self.fails(5, "run", "-m", MODELS / "tri-f16.gguf", *ranks(workers), PROMPT)
        self.assertIn("has another model", line)
        code, messages = workers[0].finish()
        self.assertEqual(code, 5)
        self.assertIn("was refused", messages)

    def test_another_arithmetic_is_refused_before_the_first_step(self):
        small = self.dir / "small.gguf"
        self.ok("quantize", TINY, small, "Q8_0")
        said = self.ok("run", "-m", small, "--arithmetic", "auto", "-n", "1", "-o", "json", PROMPT).stdout
        if json.loads(said)["config"]["load"]["arithmetic"] != "super":
            self.skipTest("all kernels choose the same here")  # there are no matrix tiles, or the system refuses them
        model = self.wide_model()
        workers = self.workers(1, "--isa", "scalar", "-m", model)
        line = self.fails(5, "logits", "-m", model, "--tokens", "1,2,3", "-o", self.dir / "auto.f32",
                          *ranks(workers, "--split", "rows", "--arithmetic", "auto"))
        self.assertIn("computes in", line)
        self.assertEqual(workers[0].finish()[0], 5)

    def test_usage(self):
        self.assertIn("--workers", self.fails(2, "run", "--backend", "ranks", PROMPT))
        self.assertIn("--backend ranks", self.fails(2, "run", "--split", "rows", PROMPT))
        self.assertIn("HOST:PORT", self.fails(2, "run", "--backend", "ranks", "--workers", "nowhere", PROMPT))
        self.assertIn("dllm worker", self.fails(3, "run", "--backend", "ranks", "--workers", "127.0.0.1:1", PROMPT))
        self.assertIn("listed twice", self.fails(2, "run", "--backend", "ranks", "--workers", "127.0.0.1:1,127.0.0.1:1",
                                                 PROMPT))
        rope = ["--rope-scaling", "linear", "--rope-scale", "2"]
        self.assertIn("--rope-scaling", self.fails(2, "run", "--backend", "ranks", "--workers", "127.0.0.1:1", *rope,
                                                   PROMPT))
        for workers in ("mpi,127.0.0.1:1", "127.0.0.1:1,mpi"):
            self.assertIn("mpi alone", self.fails(2, "run", "--backend", "ranks", "--workers", workers, PROMPT))
        self.assertIn("MPI has no key", self.fails(2, "run", "--backend", "ranks", "--workers", "mpi", "--workers-key",
                                                   "x", PROMPT))
        self.assertIn("--least-ranks", self.fails(2, "run", "--workers", "mpi", "--least-ranks", "1", PROMPT))

    @unittest.skipUnless(HAS_MPI, "OpenMPI was not installed when this was built")
    def test_mpi(self):
        expected = self.tokens("-t", "1")
        for count, split in ((2, "outputs"), (3, "rows")):
            command = [*MPIRUN, "-n", str(count), DLLM, "run", "--backend", "ranks", "--workers", "mpi", "--split", split,
                       "-t", "1", PROMPT, "-o", "json"]
            result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=self.mpi_environment(),
                                    check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            answer = json.loads(result.stdout)
            self.assertEqual((answer["text"], answer.get("steps")), expected, f"{count} {split}")

    @unittest.skipUnless(HAS_MPI, "OpenMPI was not installed when this was built")
    def test_mpi_starts_once(self):
        """The second model of a process."""
        result = subprocess.run(["mpirun", "--allow-run-as-root", "-n", "1", DLLM, "bench", "load", "step", "--no-peak",
                                 "--backend", "ranks", "--workers", "mpi", "-t", "1", "--rows", "1", "--context", "1"],
                                capture_output=True, text=True, timeout=120, env=self.mpi_environment(), check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("MPI has started in this process before", result.stderr)

    def test_weights_come_from_the_first_rank_once(self):
        tri = MODELS / "tri-f16.gguf"
        for split, count in (("outputs", 2), ("layers", 2), ("rows", 1)):
            expected = self.tokens("-m", tri, "-t", "1")
            cache = self.dir / f"cache-{split}"
            for sent in (True, False):
                workers = self.workers(count, "--cache", cache, "--key-file", self.key())
                self.assertEqual(self.tokens("-m", tri, *ranks(workers, "--split", split, "--workers-key", self.key())),
                                 expected, split)
                for worker in workers:
                    self.assertEqual(worker.finish(), (0, ""))
                    self.assertEqual("received" in worker.told, sent, worker.told)
            kept = list(cache.iterdir())
            self.assertEqual(len(kept), count)
            if split != "rows":
                for path in kept:
                    self.assertLess(path.stat().st_blocks * 512, 0.75 * tri.stat().st_size)

    def test_without_a_key_no_weights_are_kept(self):
        """Everybody on the machine could have sent them."""
        cache = self.dir / "cache"
        kept = self.workers(1, "--cache", cache, "--key-file", self.key())
        expected = self.tokens(*ranks(kept, "--split", "outputs", "--workers-key", self.key()))
        before = sorted(cache.iterdir())
        self.assertEqual(len(before), 1)
        for _ in range(2):
            worker = self.workers(1, "--cache", cache)[0]
            self.assertEqual(self.tokens(*ranks([worker], "--split", "outputs")), expected)
            self.assertEqual(worker.finish(), (0, ""))
            self.assertIn("received", worker.told)
            self.assertEqual(sorted(cache.iterdir()), before)

    def test_weights_that_cannot_come(self):
        worker = self.workers(1, "--cache", self.dir / "small", "--cache-size", "0.0001")[0]
        self.assertIn("--cache-size", self.fails(4, "run", *ranks([worker]), PROMPT))
        self.assertNotEqual(worker.finish()[0], 0)

    def test_mpi_without_its_module(self):
        copy = self.dir / "alone"
        copy.mkdir()
        shutil.copy(DLLM, copy / "dllm")
        result = subprocess.run([copy / "dllm", "run", "--backend", "ranks", "--workers", "mpi", PROMPT],
                                capture_output=True, text=True, timeout=120, env=clean_environment(), check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("libopenmpi-dev", result.stderr)

    def test_each_rank_holds_its_share(self):
        model = self.wide_model()
        size = model.stat().st_size
        # Memory that is not a map of the file: a third of it, and what a process needs anyway. All of it does not fit.
        limit = 0 if sanitized() else int(size / 3 * 1.15 + 90e6)
        self.assertLess(limit, size * 0.8)
        workers = self.workers(2, "-m", model, "--stay", limit=limit)
        self.ok("logits", "-m", model, "--tokens", "1,2,3", "-o", self.dir / "a.f32",
                *ranks(workers, "--split", "outputs"))
        self.ok("logits", "-m", model, "--tokens", "1,2,3", "-o", self.dir / "b.f32", "-t", "1")
        self.assertEqual((self.dir / "a.f32").read_bytes(), (self.dir / "b.f32").read_bytes())
        if limit:
            result = run("logits", "-m", model, "--tokens", "1,2,3", "-o", self.dir / "c.f32",
                         *ranks(workers, "--split", "rows"))
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("out of memory", result.stderr)

    @unittest.skipUnless(sys.platform == "linux", "reads /proc")
    def test_a_stranger_fills_no_memory(self):
        """Endless parts of a message, which ZeroMQ keeps until the last one, from who does not know the key."""
        key = self.dir / "stranger-key"
        key.write_text("a secret\n")
        key.chmod(0o600)
        worker = self.workers(1, "--key-file", key, "--stay")[0]
        status = pathlib.Path(f"/proc/{worker.process.pid}/status")

        def resident():
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read_text())[1])

        before = resident()
        host, port = worker.address.split(":")
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        greeting = bytes.fromhex("ff00000000000000017f") + b"\x03\x00NULL" + bytes(48)
        part = b"\x03" + struct.pack(">Q", 1 << 20) + bytes(1 << 20)
        with socket.create_connection((host, int(port))) as client, self.assertRaises(OSError):
            client.settimeout(5)
            client.sendall(greeting + b"\x04" + bytes([len(ready)]) + ready)
            for _ in range(100):
                client.sendall(part)
        self.assertLess(resident() - before, 30_000)
        self.answer(*ranks([worker], "--workers-key", key))

    def wide_model(self):
        model = self.dir / "wide.gguf"
        if not model.exists():
            self.ok("make-model", "--shape", "llada-8b", "--layers", "1", "--vocab", "2048", "--type", "Q8_0", "-o",
                    model)
        return model

    def key(self):
        path = self.dir / "group-key"
        if not path.exists():
            path.write_text("a secret\n")
            path.chmod(0o600)
        return path

    def test_old_protocols_are_refused(self):
        """Peers of ZMTP 1 and 2, whose greetings libzmq does not handle well when their connection ends."""
        host, port = self.workers(1, "--stay")[0].address.split(":")
        for greeting in (b"\x01\x00", bytes.fromhex("ff00000000000000017f01050000")):
            with socket.create_connection((host, int(port))) as client:
                client.settimeout(WAIT_S)
                client.sendall(greeting)
                # The worker's own greeting may leave before it has seen this one: the end must come, and no more than
                # the 64 bytes of a greeting before it.
                received = b""
                try:
                    while data := client.recv(100):
                        received += data
                except ConnectionResetError:
                    pass
                self.assertLessEqual(len(received), 64)

    def test_strange_bytes(self):
        """A port scanner's, a web client's, and broken greetings; then the worker still works."""
        workers = self.workers(1, "--stay")
        host, port = workers[0].address.split(":")
        random.seed(2)
        greeting = bytes.fromhex("ff00000000000000017f") + b"\x03\x00NULL" + bytes(48)
        texts = [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, greeting, greeting + b"\x04\x19\x05READY\x0bSocket-Type"
                 + struct.pack(">I", 0xffffffff), greeting + b"\x02" + struct.pack(">Q", 1 << 62)]
        texts += [bytes(random.randrange(256) for _ in range(200)) for _ in range(20)]
        for text in texts:
            with socket.create_connection((host, int(port))) as client:
                client.sendall(text)
                client.settimeout(0.05)
                try:
                    client.recv(100)
                except OSError:
                    pass
        self.answer(*ranks(workers))


if __name__ == "__main__":
    unittest.main()

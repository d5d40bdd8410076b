"""Common to the tests of several ranks: workers, and commands that use them."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time

from cli_case import DLLM, CliCase, clean_environment, run

MODELS = pathlib.Path(__file__).resolve().parent.parent.parent / "models"
TINY = MODELS / "tiny-llada-f32.gguf"  # the embedded model
HAS_MPI = shutil.which("mpirun") and (pathlib.Path(DLLM).parent / "libdllm_mpi.so").exists()
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader"]
# A limit that only a hang reaches.
WAIT_S = 120
# Until all have noticed that one is lost. `make nightly` checks the 5 that users are promised; other work may lengthen it.
WITHIN_S = float(os.environ.get("DLLM_KILL_WITHIN_S", "60"))
HAS_RANKS = "not in this build" not in run("run", "--backend", "ranks", "--list-devices").stdout


class Worker:
    """A `dllm worker` that listens."""

    def __init__(self, *args, limit=0, port=0, prefix=(), host="127.0.0.1"):
        limited = (lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))) if limit else None
        self.process = subprocess.Popen([*prefix, DLLM, "worker", "--listen", f"{host}:{port}", "-t", "1", *map(str, args)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=clean_environment(), preexec_fn=limited)
        line = self.process.stdout.readline()
        found = re.search(r"port (\d+)", line)
        if not found:
            raise AssertionError(f"no port: {line!r} {self.process.stderr.read()}")
        self.port = int(found[1])
        self.address = f"{host}:{self.port}"

    def finish(self, timeout=WAIT_S):
        """Its exit code and messages, when it ends by itself."""
        self.told, messages = self.process.communicate(timeout=timeout)
        return self.process.returncode, messages

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def ranks(workers, *args):
    return ["--backend", "ranks", "--workers", ",".join(w.address for w in workers), "-t", "1", *args]


class RanksCase(CliCase):
    def mpi_environment(self):
        """OpenMPI does not free all of its memory, which the address sanitizer would report. All runs of a user share one
        folder of files, and the first that ends removes it: each gets its own here."""
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        environment = clean_environment(TMPDIR=folder.name)
        options = [environment.get("ASAN_OPTIONS", ""), "detect_leaks=0"]
        return {**environment, "ASAN_OPTIONS": ":".join(option for option in options if option)}

    def items(self):
        path = self.dir / "items.jsonl"
        lines = [json.dumps({"prompt": f"Once upon a time {i}", "answer": "x"}) for i in range(4000)]
        path.write_text("\n".join(lines) + "\n")
        return path

    def workers(self, count, *args, **kwargs):
        made = []
        for _ in range(count):
            made.append(self.worker(*args, **kwargs))
        return made

    def worker(self, *args, port=0, **kwargs):
        """On this port, if another worker had it until now."""
        if "-m" not in args and "--cache" not in args:
            args = (*args, "-m", TINY)
        end = time.monotonic() + WAIT_S
        while True:
            try:
                made = Worker(*args, port=port, **kwargs)
                break
            except AssertionError:
                if port == 0 or time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self.addCleanup(made.stop)
        return made

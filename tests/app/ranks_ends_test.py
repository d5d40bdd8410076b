"""Ranks of which one is lost: all others end, soon and with its name.

    python3 ranks_ends_test.py PATH/TO/dllm [unittest arguments]
"""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

from cli_case import DLLM, clean_environment
from ranks_case import HAS_MPI, HAS_RANKS, MPIRUN, WAIT_S, WITHIN_S, RanksCase, ranks

# Of each rank. `make nightly` takes 20.
KILL_MOMENTS = int(os.environ.get("DLLM_KILL_MOMENTS", "4"))


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def environment_of(pid):
    pairs = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)


def runs(pid):
    """Whether it has not ended; nobody may have asked yet how it did."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@unittest.skipUnless(HAS_RANKS, "this build has no ranks on other machines (libzmq3-dev)")
class LostRanks(RanksCase):
    def kill_one(self, victim, delay):
        """kill -9 of a rank of three, so long after they have met."""
        workers = self.workers(2)
        command = [DLLM, "eval", *ranks(workers), "--limit", "100000", self.items()]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=clean_environment())
        self.addCleanup(first.kill)
        self.assertIn("for a step of", first.stderr.readline())
        time.sleep(delay)
        self.assertIsNone(first.poll(), "still running")
        start = time.monotonic()
        if victim == 0:
            first.kill()
            first.communicate()
        else:
            killed = workers.pop(victim - 1)
            killed.process.send_signal(signal.SIGKILL)
            _, messages = first.communicate(timeout=WAIT_S)
            self.assertNotEqual(first.returncode, 0)
            self.assertIn(f"rank {victim} ({killed.address})", messages)
        for worker in workers:
            self.assertNotEqual(worker.finish()[0], 0)
        took = time.monotonic() - start
        self.assertLess(took, WITHIN_S)
        return took

    def test_a_killed_rank_is_named(self):
        """At any moment after the ranks have met: while weights are packed, in a step, in an exchange, between items."""
        draw = random.Random(1)
        for victim in range(3):  # 0: the first rank
            took = [self.kill_one(victim, 0.6 * draw.random() ** 2) for _ in range(KILL_MOMENTS)]
            print(f"rank {victim} killed at {len(took)} moments: all others ended within {max(took):.2f} s",
                  file=sys.stderr)

    def test_a_stopped_machine_is_noticed(self):
        """No packet comes any more, as if a cable were pulled."""
        workers = self.workers(1)
        command = [DLLM, "eval", *ranks(workers), "--limit", "100000", self.items()]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=clean_environment())
        self.addCleanup(first.kill)
        self.assertIn("for a step of", first.stderr.readline())
        os.kill(workers[0].process.pid, signal.SIGSTOP)
        _, messages = first.communicate(timeout=WITHIN_S)
        self.assertIn("rank 1", messages)

    @unittest.skipUnless(HAS_MPI and sys.platform == "linux", "OpenMPI was not installed when this was built")
    def test_mpi_ends_all_when_one_is_killed(self):
        """MPI itself watches its processes."""
        draw = random.Random(2)
        for victim in range(3):
            took = []
            for _ in range((KILL_MOMENTS + 2) // 3):
                command = [*MPIRUN, "-n", "3", DLLM, "eval", "--backend", "ranks", "--workers", "mpi", "-t", "1",
                           "--limit", "100000", self.items()]
                group = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                         env=self.mpi_environment())
                self.addCleanup(group.kill)
                line = group.stderr.readline()
                while "for a step of" not in line:
                    self.assertNotEqual(line, "", "it began")
                    line = group.stderr.readline()
                ranks_of_group = {environment_of(pid).get("OMPI_COMM_WORLD_RANK"): pid for pid in children_of(group.pid)}
                time.sleep(0.6 * draw.random() ** 2)
                start = time.monotonic()
                os.kill(ranks_of_group[str(victim)], signal.SIGKILL)
                _, messages = group.communicate(timeout=WAIT_S)
                self.assertNotEqual(group.returncode, 0)
                self.assertRegex(messages, "signal 9|Killed", "mpirun says what ended it")
                while any(runs(pid) for pid in ranks_of_group.values()):
                    self.assertLess(time.monotonic() - start, WITHIN_S, "a rank is left")
                    time.sleep(0.02)
                took.append(time.monotonic() - start)
                self.assertLess(took[-1], WITHIN_S)
            print(f"rank {victim} of MPI killed at {len(took)} moments: all others ended within {max(took):.2f} s",
                  file=sys.stderr)


if __name__ == "__main__":
    unittest.main()

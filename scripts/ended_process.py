"""For the tests of scripts: whether a process has ended."""

import pathlib
import time


def assert_ends(test, pid, seconds=60):
    """Waits until a process is gone, or is only left for its parent to see; else fails the test."""
    end = time.monotonic() + seconds
    state = pathlib.Path(f"/proc/{pid}/stat")
    while True:
        try:
            if ") Z " in state.read_text():
                return
        except OSError:
            return
        test.assertLess(time.monotonic(), end, f"process {pid} is still running")
        time.sleep(0.05)

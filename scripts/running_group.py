"""A process group that a later run can end: for plant_faults.py and nightly.py, which may be killed while one works."""

import fcntl
import os
import pathlib
import signal
import subprocess
import time
import typing


class StillRunning(Exception):
    """What an earlier run has started does not end. The message names the group."""


class RunningGroup:
    """`file` is locked by the group and holds its number."""

    def __init__(self, file: pathlib.Path):
        self.file = file

    def start(self, command: list[str], cwd: pathlib.Path, environment: dict[str, str],
              output: typing.TextIO) -> subprocess.Popen[bytes]:
        """In a session of its own, which keeps `file` locked while any of it lives: see end_left_behind()."""
        self.file.unlink(missing_ok=True)  # a daemon that an earlier one has left behind may hold the old one for ever
        with self.file.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            process = subprocess.Popen(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True, pass_fds=(held.fileno(),))
            held.write(str(process.pid))
        return process

    @staticmethod
    def end(process: subprocess.Popen[bytes]) -> None:
        """Whatever the group still does: a server that survives would disturb the next one."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def end_left_behind(self, patience: float = 60) -> None:
        """What a killed run has started goes on without it: a build would still write into its folder. The lock says
        that the group whose number the file holds is that one and not a later one with the same number."""
        end = time.monotonic() + patience
        with self.file.open("a+") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    file.seek(0)
                    group = file.read()
                if time.monotonic() > end:
                    raise StillRunning(f"processes of an earlier run (group {group or 'unknown'}) do not end")
                if group:
                    try:
                        os.killpg(int(group), signal.SIGKILL)
                    except ProcessLookupError:
                        return  # the lock is a daemon's, which has left the group
                time.sleep(0.02)

"""A process group that a later run can end: for plant_faults.py and nightly.py, which may be killed while one works."""

import fcntl
import os
import pathlib
import signal
import subprocess
import time
import typing

PROCESSES = pathlib.Path("/proc")


class StillRunning(Exception):
    """What an earlier run has started does not end. The message names the group."""


def _signal(group: int, number: int) -> bool:
    """False: there is no such group, or it is another's."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _holds(group: int, held: os.stat_result) -> bool:
    """Whether a process of the group has this file open. Without /proc it is assumed."""
    if not PROCESSES.is_dir():
        return True
    for process in PROCESSES.iterdir():
        try:
            if not process.name.isdecimal() or os.getpgid(int(process.name)) != group:
                continue
            for descriptor in (process / "fd").iterdir():
                try:
                    file = descriptor.stat()
                except OSError:
                    continue
                if (file.st_dev, file.st_ino) == (held.st_dev, held.st_ino):
                    return True
        except OSError:
            continue  # it has ended, or is another's
    return False


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
    def end(process: subprocess.Popen[bytes], patience: float = 10) -> None:
        """Whatever the group still does: a server that survives would disturb the next one. What runs is asked
        first, and has so many seconds: it may have a group of its own to end."""
        if patience > 0 and process.poll() is None:
            end = time.monotonic() + patience
            left = _signal(process.pid, signal.SIGTERM)
            while left and time.monotonic() < end:
                time.sleep(0.02)
                left = process.poll() is None or _signal(process.pid, 0)
        _signal(process.pid, signal.SIGKILL)
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
                # Else the lock is a daemon's, which has left the group, and the number may be another's by now.
                held = os.fstat(file.fileno())
                if group and not (_holds(int(group), held) and _signal(int(group), signal.SIGKILL)):
                    return
                time.sleep(0.02)

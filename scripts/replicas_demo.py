#!/usr/bin/env python3
"""Three replicas of `dllm serve` behind HAProxy (packaging/haproxy.cfg) under load, one of which fails halfway:

scripts/replicas_demo.py [--dllm build/release/dllm] [--requests 300] [--clients 8] [--how kill|touch|rewrite]

--how kill ends the replica's process; touch gives its model file another time, and the replica goes on when it has
compared the file; rewrite changes the file's bytes, and the replica ends. Fails if a request is lost that had not begun
to be answered, or if an answer differs from that of a replica alone. Needs haproxy (Debian's package).
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int, number: int, seconds: float = 60) -> tuple[str, float]:
    """The answer to question `number`, or why there is none; and how long it took."""
    body = json.dumps({"messages": [{"role": "user", "content": f"{number % 20}+{number % 7}="}], "max_tokens": 32})
    start = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            return f"lost: status {response.status}", time.monotonic() - start
        return json.loads(text)["choices"][0]["message"]["content"], time.monotonic() - start
    except (OSError, http.client.HTTPException) as error:
        return f"lost: {error!r}", time.monotonic() - start
    finally:
        connection.close()


def wait_until(check, seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise SystemExit(f"replicas_demo: {what} did not happen in {seconds} s")
        time.sleep(0.05)


def fail(how: str, server: "subprocess.Popen[bytes]", model: pathlib.Path) -> None:
    if how == "kill":
        server.kill()
    elif how == "touch":
        os.utime(model, (1, 1))
    else:
        with model.open("r+b") as file:  # the weights of the last tensors, in place
            file.seek(-(1 << 16), os.SEEK_END)
            file.write(os.urandom(1 << 16))


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dllm", default=str(ROOT / "build/release/dllm"))
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--how", choices=("kill", "touch", "rewrite"), default="kill")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return measure(options, pathlib.Path(folder))


def measure(options: argparse.Namespace, folder: pathlib.Path) -> int:
    models = [folder / f"replica{i}.gguf" for i in range(3)]
    for model in models:
        shutil.copyfile(ROOT / "models/tiny-llada-f32.gguf", model)
    ports = [free_port() for _ in range(4)]
    front = ports.pop()
    servers = [
        subprocess.Popen([options.dllm, "serve", "-m", str(model), "--port", str(port), "-t", "1", "--log-format", "none"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for port, model in zip(ports, models)
    ]
    addresses = {f"DLLM_{i + 1}": f"127.0.0.1:{port}" for i, port in enumerate(ports)}
    proxy = subprocess.Popen(["haproxy", "-f", str(ROOT / "packaging/haproxy.cfg"), "-q"],
                             env={**os.environ, **addresses, "DLLM_FRONT": f"127.0.0.1:{front}"})
    try:
        for port in ports:
            wait_until(lambda port=port: not ask(port, 0)[0].startswith("lost"), 60, f"the start of {port}")
        wait_until(lambda: not ask(front, 0)[0].startswith("lost"), 30, "the start of the proxy")
        alone = [ask(ports[0], number)[0] for number in range(140)]

        def one(number: int) -> tuple[int, str, float]:
            if number == options.requests // 2:
                fail(options.how, servers[1], models[1])
            return (number, *ask(front, number))

        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(options.clients) as pool:
            results = list(pool.map(one, range(options.requests)))
        seconds = time.monotonic() - start
        if options.how == "rewrite":
            wait_until(lambda: servers[1].poll() == 3, 30, "the end of the replica whose file was rewritten")
    finally:
        for process in [proxy, *servers]:
            process.terminate()
        for process in [proxy, *servers]:
            process.wait(30)
    lost = [text for _, text, _ in results if text.startswith("lost")]
    wrong = [n for n, text, _ in results if not text.startswith("lost") and text != alone[n % 140]]
    times = [taken for _, text, taken in results if not text.startswith("lost")]
    print(f"{options.requests} requests by {options.clients} clients in {seconds:.1f} s; one of three replicas: "
          f"{options.how} after {options.requests // 2}")
    print(f"lost {len(lost)}, wrong {len(wrong)}; p50 {1e3 * percentile(times, 0.5):.0f} ms, "
          f"p99 {1e3 * percentile(times, 0.99):.0f} ms, longest {1e3 * max(times):.0f} ms")
    for reason, count in collections.Counter(lost).items():
        print(f"  {count} x {reason}")
    return 1 if lost or wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""`dllm serve` under load and attack for a long time: nobody may notice.

    scripts/serve_soak.py build/release/dllm [--seconds 1800] [--clients 4] [--attackers 2] [-m MODEL.gguf]

Clients ask the same questions again and again, by every API, streamed and not, on connections that stay open. Beside them
run the attackers of serve_hostile.py (damaged, oversized, slow and cut-off requests), and somebody who asks for /health
twenty times a second. It fails if a client gets an error or an answer that differs from the first one, if 1 % of the
answers of /health take 100 ms or longer, if memory keeps growing, or if the server, told to end while it answers, takes
longer than five seconds or forgets an answer. The figures are one line of JSON; a failure is exit status 1.
"""

import argparse
import collections
import http.client
import json
import multiprocessing
import random
import signal
import sys
import threading
import time
from typing import Any

import serve_hostile as hostile

HEALTH_SECONDS = 0.1   # 99 % of the answers of /health are faster
DRAIN_SECONDS = 5.0    # from SIGTERM to the end
GROWTH_MB = 40.0       # from a tenth of the time to the end
GREEDY: dict[str, Any] = {"temperature": 0, "algorithm": "low-confidence", "exact_length": True}
ASKED = ("3 + 4 =", "Sort these words: pear apple fig", "Reverse: a b c d", hostile.ASKED)


def questions() -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for number, text in enumerate(ASKED):
        turns = [{"role": "user", "content": text}]
        chat = {"messages": turns, "max_tokens": 16 + 8 * number, **GREEDY}
        found += [("/v1/chat/completions", chat), ("/v1/chat/completions", {**chat, "stream": True}),
                  ("/v1/completions", {"prompt": text, "max_tokens": 16, **GREEDY}),
                  ("/v1/messages", {"messages": turns, "max_tokens": 16, **GREEDY}),
                  ("/v1/responses", {"input": text, "max_output_tokens": 16, **GREEDY}),
                  ("/tokenize", {"content": text}),
                  ("/v1/score", {"context": text, "continuation": " blue", "samples": 4})]
    return found


def essence(status: int, text: bytes) -> str:
    """What must be the same every time: not the id, the date and the seconds."""
    if status != 200:
        return f"status {status}: {text[:200].decode(errors='replace')}"
    if text.startswith((b"data:", b"event:")):
        pieces = []
        for line in text.decode().splitlines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:]).get("choices", []):
                    pieces.append(choice.get("delta", {}).get("content") or "")
        return "".join(pieces) + ("" if b"[DONE]" in text else " (cut off)")
    volatile = {"id", "created", "created_at", "seconds", "usage", "dllm", "completed_at"}

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(inner) for key, inner in value.items() if key not in volatile}
        return [without(one) for one in value] if isinstance(value, list) else value

    return json.dumps(without(json.loads(text)), sort_keys=True)


class Client:
    """Asks on a connection that stays open; if the server closes it early, that is an error."""

    def __init__(self, port: int):
        self.link = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, path: str, body: dict[str, Any] | None) -> str:
        self.link.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        response = self.link.getresponse()
        return essence(response.status, response.read()) if body is not None else str(response.status) + str(response.read())


def client(port: int, seed: int, end: float, expected: list[str], pipe: Any) -> None:
    source, asked = random.Random(seed), questions()
    count = 0
    failures: list[str] = []
    one = Client(port)
    while time.monotonic() < end and len(failures) < 10:
        number = source.randrange(len(asked))
        try:
            found = one.ask(*asked[number])
        except (OSError, http.client.HTTPException, ValueError) as error:
            found, one = f"{error!r}", Client(port)
        count += 1
        if found != expected[number]:
            failures.append(f"{asked[number][0]}: {found[:300]}, not {expected[number][:300]}")
    pipe.send((count, failures))


def watch_health(port: int, end: float, pipe: Any) -> None:
    """On connections of its own, since that is how balancers ask."""
    times: list[float] = []
    failures: list[str] = []
    while (start := time.monotonic()) < end and len(failures) < 10:
        try:
            answer = Client(port).ask("/health", None)
            if not answer.startswith("200"):
                failures.append(f"/health: {answer}")
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"/health: {error!r}")
        times.append(time.monotonic() - start)
        time.sleep(max(0.0, 0.05 - times[-1]))
    pipe.send((times, failures))


def attack(server: Any, seed: int, end: float, pipe: Any) -> None:
    one = hostile.Attack(server, seed, 0)
    while time.monotonic() < end:
        try:
            one.one()
        except (ConnectionError, TimeoutError) as error:
            one.statuses[type(error).__name__] += 1
    pipe.send((sum(one.kinds.values()), one.failures[:10]))


def started(work: Any, *arguments: Any) -> tuple[Any, Any]:
    """A process, so that no interpreter makes others wait; and what it will send."""
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=work, args=(*arguments, send), daemon=True)
    process.start()
    return process, receive


def share(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else float("inf")


def drained(server: Any) -> tuple[float, int, int]:
    """Seconds from SIGTERM to the end, answers that had begun and were given, exit status."""
    answers: list[int] = []
    body = {"messages": [{"role": "user", "content": ASKED[1]}], "max_tokens": 64, **GREEDY}
    threads = [threading.Thread(target=lambda: answers.append(server.ask(hostile.CHAT, body)[0])) for _ in range(4)]
    before = float(server.metrics()["dllm_requests_submitted_total"])
    for thread in threads:
        thread.start()
    while float(server.metrics()["dllm_requests_submitted_total"]) < before + len(threads):
        time.sleep(0.005)
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    status = server.process.wait(timeout=120)
    seconds = time.monotonic() - start
    for thread in threads:
        thread.join()
    return seconds, answers.count(200), status


def soak(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    server = hostile.Server(options.dllm, *(["-m", options.model] if options.model else []))
    first = Client(server.port)
    expected = [first.ask(*question) for question in questions()]
    failures = [one for one in expected if one.startswith("status ") or one.endswith("(cut off)")]
    end = time.monotonic() + options.seconds
    clients = [started(client, server.port, i, end, expected) for i in range(options.clients)]
    health = started(watch_health, server.port, end)
    attackers = [started(attack, server, options.seed * 100 + i, end) for i in range(options.attackers)]
    time.sleep(options.seconds / 10)
    warm = server.rss()
    asked = [receive.recv() for _, receive in clients]
    times, ill = health[1].recv()
    attacked = [receive.recv() for _, receive in attackers]
    time.sleep(4)  # clients that sleep are left
    growth = server.rss() - warm
    failures += [text for _, texts in asked + attacked for text in texts] + ill
    seconds, answered, status = drained(server)
    figures = {"seconds": options.seconds, "requests": sum(count for count, _ in asked),
               "attacks": sum(count for count, _ in attacked), "health": len(times),
               "health_p50_ms": round(1e3 * share(times, 0.5), 2), "health_p99_ms": round(1e3 * share(times, 0.99), 2),
               "health_max_ms": round(1e3 * max(times, default=0), 2), "warm_mb": round(warm, 1),
               "growth_mb": round(growth, 1), "drain_s": round(seconds, 2), "client_errors": len(failures)}
    failures += judged(figures)
    if status != 0 or answered != 4:
        failures.append(f"told to end, the server gave {answered} of 4 answers and status {status}")
    if failures:
        server.errors.seek(0)
        failures.append(server.errors.read()[-2000:])
    return figures, failures


def judged(figures: dict[str, Any]) -> list[str]:
    """What is wrong with the figures."""
    wrong = []
    if figures["health_p99_ms"] >= 1e3 * HEALTH_SECONDS:
        wrong.append(f"1 % of the answers of /health took {figures['health_p99_ms']} ms or longer")
    if figures["growth_mb"] > GROWTH_MB:
        wrong.append(f"memory grew by {figures['growth_mb']} MB")
    if figures["drain_s"] > DRAIN_SECONDS:
        wrong.append(f"the end took {figures['drain_s']} s")
    if figures["requests"] == 0 or figures["health"] == 0:
        wrong.append("nothing was asked")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dllm")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--attackers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-m", "--model")
    figures, failures = soak(parser.parse_args())
    print(json.dumps(figures))
    for failure, count in collections.Counter(failures).items():
        print(f"serve_soak: {count} x {failure}" if count > 1 else f"serve_soak: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Large bodies against `dllm serve`, for serve_hostile.py."""

import collections
import json
import multiprocessing
import random
import signal
import time
from typing import Any

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "3+4="}], "max_tokens": 8}


def many_keys(count):
    return {f"key{i}": i for i in range(count)}


def large(rng):
    """A body in which something could be searched, copied or compared again and again, or that is dear to compile."""
    kind, many = rng.randrange(12), many_keys(rng.choice((280_000, 60_000, 5_000)))
    if kind == 0:
        return CHAT, {**ASK, "metadata": many}
    if kind == 1:
        return CHAT, {**ASK, **many}
    if kind == 2:
        function = {"name": "f", "parameters": {"type": "object", "properties": many}}
        return CHAT, {**ASK, "tools": [{"type": "function", "function": function}]}
    if kind == 3:
        return CHAT, {**ASK, "json_schema": {"type": "object", "properties": many}}
    if kind == 4:  # a billion laughs
        laughs = {f"d{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(30)}
        return CHAT, {**ASK, "json_schema": {"$ref": "#/$defs/d0", "$defs": {**laughs, "d30": {"type": "string"}}}}
    if kind == 5:
        return CHAT, {**ASK, "regex": "(a{1,999}|b*)" * rng.randrange(1, 9)}
    if kind == 6:
        return CHAT, {"messages": ASK["messages"] * 20_000, "max_tokens": 8}
    if kind == 7:
        return "/tokenize", {"content": rng.choice(("a", " ", "\u00e9", "aB ")) * 900_000}
    if kind == 8:
        return "/detokenize", {"tokens": [7] * rng.choice((200_000, 900_000))}
    if kind == 9:
        names = [{"name": f"f{i}"} for i in range(rng.choice((9_000, 900)))]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": names[::-1] * 3}}
        return CHAT, {**ASK, "tools": [{"type": "function", "function": one} for one in names], "tool_choice": choice}
    if kind == 10:
        carets = {"type": "string", "pattern": "^" * 31_000 + "a"}
        return CHAT, {**ASK, "json_schema": {"type": "object", "properties": {f"k{i}": carets for i in range(8)}}}
    return "/v1/responses", {"input": "3+4=", "max_output_tokens": 8, "metadata": many}


def large_bodies(start, seed, seconds):
    """Three clients send large bodies, each leaving now and then before its answer, while another asks /health.
    `start` starts a server with more flags."""
    server = start("--max-body", "8192", "--drain-timeout", "60")
    end, times, failures = time.monotonic() + seconds, [], []
    results = multiprocessing.get_context("fork").SimpleQueue()

    def attack(number):
        rng, statuses = random.Random(seed * 10 + number), collections.Counter()
        while time.monotonic() < end + 1:
            path, body = large(rng)
            try:
                with server.connect(600) as link:
                    text = json.dumps(body).encode()
                    link.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
                    statuses["left" if rng.random() < 0.3 else link.recv(64)[9:12].decode()] += 1
            except OSError as error:
                statuses[type(error).__name__] += 1
                time.sleep(0.05)
        results.put(statuses)

    # Processes: the lock of one interpreter would delay the measurement here while others write large bodies.
    attackers = [multiprocessing.get_context("fork").Process(target=attack, args=(number,)) for number in range(3)]
    for attacker in attackers:
        attacker.start()
    while time.monotonic() < end:
        begin = time.monotonic()
        if server.ask("/health", None, "GET")[0] != 200:
            failures.append("/health failed beside large bodies")
        times.append(time.monotonic() - begin)
        time.sleep(0.005)
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    status = server.process.wait(timeout=600)
    drain = time.monotonic() - begin
    statuses = sum((results.get() for _ in attackers), collections.Counter())
    for attacker in attackers:
        attacker.join()
    if status != 0:
        failures.append(f"the server ended with {status} beside large bodies")
    times.sort()
    health = {"asked": len(times), "p50_ms": round(times[len(times) // 2] * 1e3, 2),
              "p99_ms": round(times[int(0.99 * len(times))] * 1e3, 2), "max_ms": round(times[-1] * 1e3, 2)}
    return {"statuses": dict(statuses.most_common()), "health": health, "drain_s": round(drain, 2)}, failures

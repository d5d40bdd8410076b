"""`dllm pull` where there is no network, or one that swallows packets.

    python3 cli_network_test.py PATH/TO/dllm [unittest arguments]
"""

import json
import signal
import socket
import subprocess
import threading
import time
import unittest

from cli_case import DLLM, clean_environment
from cli_hub_test import HubCase
from serve_case import Server
from serve_limits_test import wait_until


class Network(HubCase):
    def test_without_a_network(self):
        """No hub, no cache: one line, and no series of attempts."""
        message = self.refused(3, "org/tiny:F32", HF_ENDPOINT="http://127.0.0.1:9")
        self.assertIn("the hub cannot be reached", message)
        self.assertIn("network", message)

    def test_a_proxy_that_refuses(self):
        """Its answer is no hub's: one line at once, and no series of attempts."""
        with socket.create_server(("127.0.0.1", 0)) as proxy:
            asked = []

            def refuse():
                while True:
                    try:
                        connection, _ = proxy.accept()
                    except OSError:
                        return
                    with connection:
                        asked.append(connection.recv(4096))
                        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

            threading.Thread(target=refuse, daemon=True).start()
            message = self.refused(3, "org/tiny:F32", HF_ENDPOINT="https://hub.invalid", no_proxy="",
                                   https_proxy=f"http://127.0.0.1:{proxy.getsockname()[1]}")
            proxy.shutdown(socket.SHUT_RDWR)
        self.assertIn("the hub cannot be reached", message)
        self.assertIn("403", message)
        self.assertEqual(len(asked), 1, asked)

    def test_a_network_that_swallows_packets(self):
        """A listener that never accepts: the system connects, and nobody answers."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            environment = self.environment()
            environment["HF_ENDPOINT"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
            start = time.monotonic()
            process = subprocess.Popen([DLLM, "pull", "org/tiny:F32"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True, env=clean_environment(**environment))
            line = process.stderr.readline()
            self.assertIn("no answer yet; is there a network?", line)
            self.assertLess(time.monotonic() - start, 120, "generous, for a busy machine; 3 s are promised")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 130, err)
            # What is in the cache does not wait for it.
            self.pull("org/tiny:F32")
            done = subprocess.run([DLLM, "pull", "org/tiny:F32"], capture_output=True, text=True, timeout=120,
                                  env=clean_environment(**environment))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("no answer within 2.5 s", done.stderr)
            self.assertIn("using the cached files", done.stderr)


class OllamasPull(HubCase):
    def lines(self, reply):
        return [json.loads(line) for line in reply.body.splitlines()]

    def test_a_model_comes_into_the_cache(self):
        with Server(**self.environment()) as server:
            reply = server.post("/api/pull", {"model": "org/tiny:F32"})
            self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, "application/x-ndjson"))
            lines = self.lines(reply)
            self.assertEqual((lines[0]["status"], lines[-1]), ("pulling manifest", {"status": "success"}))
            self.assert_complete()
            whole = server.post("/api/pull", {"name": "org/tiny:F32", "stream": False, "insecure": True})
            self.assertEqual((whole.status, whole.json), (200, {"status": "success"}))
            self.assertIn("insecure", whole.headers["x-dllm-ignored"])
            self.assertIn("no such", self.lines(server.post("/api/pull", {"model": "org/none"}))[-1]["error"])
            for body, status in (({"model": "org/none", "stream": False}, 400), ({}, 400), ({"model": "a b"}, 200)):
                self.assertEqual(server.post("/api/pull", body).status, status, body)

    def test_it_ends_with_its_client_and_its_server(self):
        self.hub.faults = ["hang"]
        with Server(**self.environment()) as server:
            client = server.connect()
            client.request("POST", "/api/pull", json.dumps({"model": "org/tiny:F32"}))
            self.assertTrue(self.hub.hanging.wait(60))
            self.assertEqual(server.get("/health").status, 200)
            client.close()
            wait_until(lambda: any(line.get("path") == "/api/pull" for line in server.log()))
        self.hub.released.set()

    def test_servers_that_anybody_reaches_do_not_download(self):
        with Server("--host", "0.0.0.0", **self.environment()) as server:
            reply = server.post("/api/pull", {"model": "org/tiny:F32"})
            self.assertEqual(reply.status, 404)
            self.assertIn("`dllm pull` downloads models", reply.json["error"])


if __name__ == "__main__":
    unittest.main()

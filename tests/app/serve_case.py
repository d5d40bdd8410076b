"""Common to the tests of `dllm serve`: starting a server, and requests to it."""

import http.client
import json
import os
import signal
import subprocess
import threading
import unittest

from cli_case import DLLM, clean_environment

QUESTION = [{"role": "user", "content": "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?"}]

# The embedded model's own chat template, which says that it knows tools: their texts would be a language that it has not learned.
TOOL_TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content or '' }}"
                 "<|eot_id|>{% endfor %}{% if tools %}{% endif %}<|start_header_id|>assistant<|end_header_id|>\n\n")


class Reply:
    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, dict(response.getheaders()), body

    @property
    def json(self):
        return json.loads(self.body)


class Server:
    """`dllm serve` on a free port of the loopback; a context manager."""

    def __init__(self, *flags, **environment):
        self.process = subprocess.Popen([DLLM, "serve", "--port", "0", "--log-format", "json", *map(str, flags)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=clean_environment(**environment))
        line = self.process.stdout.readline()
        if "listening on" not in line:
            raise RuntimeError(self.process.communicate()[1])
        self.port = int(line.rsplit(":", 1)[1])
        self.lines = []
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()

    def read_log(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def __enter__(self):
        return self

    def __exit__(self, failed=None, *unused):
        """Ends the server as its user would, so that leaks and races that a sanitized one has found are seen."""
        for _ in range(2):  # the second signal does not wait for open requests
            if self.process.poll() is None:
                self.terminate()
                try:
                    self.process.wait(timeout=120)
                except subprocess.TimeoutExpired:
                    pass
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        if failed is None and self.process.returncode != 0:
            raise RuntimeError(f"the server ended with {self.process.returncode}: {''.join(self.lines[-60:])}")

    def log(self):
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def terminate(self):
        os.kill(self.process.pid, signal.SIGTERM)

    def connect(self, timeout=300):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        reply = Reply(response, response.read())
        connection.close()
        return reply

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, body, **headers):
        return self.ask("POST", path, body, headers)

    def metric(self, name):
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def events(self, path, body):
        """The parsed data of a stream's events; "[DONE]" unchanged."""
        reply = self.post(path, {**body, "stream": True})
        assert reply.status == 200, reply.body
        assert reply.headers["Content-Type"] == "text/event-stream", reply.headers
        found = []
        for block in reply.body.decode().split("\n\n"):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            if not lines:
                continue
            names = [line[7:] for line in lines if line.startswith("event: ")]
            data = "".join(line[6:] for line in lines if line.startswith("data: "))
            found.append((names[0] if names else "", data if data == "[DONE]" else json.loads(data)))
        return found


class ServeCase(unittest.TestCase):
    """One server for the tests of a class."""
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.FLAGS)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def refused(self, status, path, body, field=None, **headers):
        reply = self.server.post(path, body, **headers)
        self.assertEqual(reply.status, status, reply.body)
        error = reply.json["error"]
        self.assertIsInstance(error["message"], str)
        self.assertIn("type", error)
        if field is not None:
            self.assertEqual(error["param"], field, error)
        return error

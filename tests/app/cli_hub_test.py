"""`dllm pull` and `-hf` against a hub on the loopback that misbehaves on demand.

    python3 cli_hub_test.py PATH/TO/dllm [unittest arguments]
"""

import hashlib
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time
import unittest

import cli_test_files as files
from cli_case import DLLM, CliCase, clean_environment

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHIPPED = pathlib.Path(__file__).resolve().parents[2] / "models" / "tiny-llada-f32.gguf"


def git_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub(http.server.ThreadingHTTPServer):
    """Repositories in memory. `faults` are consumed one by one, by successive requests for files."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories = {}      # name -> {path: bytes}
        self.large = set()          # paths identified by their SHA-256, as large files are
        self.token = None           # required, if set
        self.blobs = True           # the list includes sizes and digests
        self.faults = []
        self.sent = 0               # bytes of bodies that are too long
        self.requests = []          # (method, path, headers)
        self.elsewhere = None       # another hub, to which files are redirected
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def etag(self, path, data):
        return hashlib.sha256(data).hexdigest() if path in self.large else git_blob(data)

    def gets(self, part="/resolve/"):
        return [r for r in self.requests if r[0] == "GET" and part in r[1]]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server
        self.server.requests.append((self.command, self.path, dict(self.headers)))
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self.reply(401, b'{"error": "Invalid username or password."}')
        path = self.path.split("?")[0]
        if path.startswith("/api/models/"):
            return self.listing(path.removeprefix("/api/models/"))
        name, _, rest = path.removeprefix("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        data = hub.repositories.get(name, {}).get(file)
        if data is None or revision != COMMIT:
            return self.reply(404, X_Error_Code="EntryNotFound")
        return self.file(file, data)

    def listing(self, rest):
        hub = self.server
        name, _, revision = rest.partition("/revision/")
        if name not in hub.repositories:
            return self.reply(404, X_Error_Code="RepoNotFound")
        if revision not in ("main", COMMIT):
            return self.reply(404, X_Error_Code="RevisionNotFound")
        siblings = []
        for path, data in hub.repositories[name].items():
            entry = {"rfilename": path}
            if hub.blobs:
                entry.update(size=len(data), blobId=git_blob(data))
                if path in hub.large:
                    entry["lfs"] = {"sha256": hub.etag(path, data), "size": len(data), "pointerSize": 135}
            siblings.append(entry)
        return self.reply(200, json.dumps({"sha": COMMIT, "siblings": siblings}).encode())

    def too_much(self, fault, data):
        """More than the list announced: with a length, or in chunks until the client leaves (at most 100 times)."""
        self.send_response(200)
        if fault == "longer":
            self.send_header("Content-Length", str(100 * len(data)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        try:
            for _ in range(100):
                self.wfile.write(data if fault == "longer" else b"%x\r\n" % len(data) + data + b"\r\n")
                self.server.sent += len(data)
        except OSError:
            pass

    def file(self, path, data):
        hub = self.server
        fault = hub.faults.pop(0) if hub.faults and self.command == "GET" else None
        tags = {"ETag": f'"{hub.etag(path, data)}"', "X_Repo_Commit": COMMIT}
        if hub.elsewhere:
            tags = {"X_Linked_Etag": tags["ETag"], "X_Linked_Size": str(len(data))}
            return self.reply(302, Location=hub.elsewhere.url.replace("127.0.0.1", "localhost") + self.path, **tags)
        if fault == "unavailable":
            return self.reply(503)
        if fault == "wrong bytes":
            data = data[:-1] + bytes([data[-1] ^ 1])
        first = 0
        if (wanted := self.headers.get("Range")) and fault != "no ranges":
            first = int(wanted.removeprefix("bytes=").split("-")[0])
            if first >= len(data):
                return self.reply(416)
        first += fault == "other range"
        part = data[first:]
        if fault in ("endless", "longer"):
            return self.too_much(fault, data)
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        for name, value in tags.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "HEAD":
            return None
        if fault in ("cut", "hang"):
            self.wfile.write(part[:len(part) // 2])
            self.wfile.flush()
            if fault == "hang":
                hub.hanging.set()
                hub.released.wait(30)
            self.close_connection = True
            return None
        self.wfile.write(part)
        return None


class HubCase(CliCase):
    def setUp(self):
        self.hub = Hub()
        self.hub.hanging, self.hub.released = threading.Event(), threading.Event()
        self.cache = self.dir / self.id()
        self.gguf = SHIPPED.read_bytes()
        self.hub.repositories["org/tiny"] = {"README.md": b"# tiny\n", "tiny-F32.gguf": self.gguf,
                                             "tiny-Q8_0.gguf": b"GGUF, but not a whole one"}
        self.hub.large = {"tiny-F32.gguf"}
        self.sha = hashlib.sha256(self.gguf).hexdigest()
        self.folder = self.cache / "models--org--tiny"

    def tearDown(self):
        self.hub.released.set()
        self.hub.shutdown()
        self.hub.server_close()

    def environment(self, **extra):
        return {"HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache), "HF_TOKEN": "", "HF_TOKEN_PATH": "",
                "HF_HOME": str(self.cache), "HF_HUB_OFFLINE": "", "no_proxy": "*", **extra}

    def pull(self, *args, **extra):
        return self.ok("pull", *args, **self.environment(**extra))

    def refused(self, code, *args, **extra):
        return self.fails(code, "pull", *args, **self.environment(**extra))

    def assert_complete(self):
        self.assertEqual((self.folder / "blobs" / self.sha).read_bytes(), self.gguf)
        self.assertFalse((self.folder / "blobs" / f"{self.sha}.incomplete").exists())


class Pull(HubCase):
    def test_a_file_in_the_hubs_own_layout(self):
        result = self.pull("org/tiny:f32")
        link = self.folder / "snapshots" / COMMIT / "tiny-F32.gguf"
        self.assertEqual(result.stdout.strip(), str(link))
        self.assertEqual(os.readlink(link), f"../../blobs/{self.sha}")
        self.assertEqual((self.folder / "refs" / "main").read_text(), COMMIT)
        self.assert_complete()
        self.assertRegex(result.stderr, r"tiny-F32\.gguf: [0-9.]+ MB on disk, [0-9.]+ MB of memory needed, [0-9.]+ [GM]B free: fits")
        self.assertEqual(len(self.hub.gets()), 1)
        again = json.loads(self.pull("org/tiny:F32", "-o", "json").stdout)
        self.assertEqual(again, {"path": str(link), "commit": COMMIT, "bytes": len(self.gguf), "fetched": 0,
                                 "offline": False})
        self.assertEqual(len(self.hub.gets()), 1, "what is there is not fetched again")

    def test_lists_that_tell_no_digests(self):
        self.hub.blobs = False
        self.pull("org/tiny:F32")
        self.assert_complete()

    def test_choices(self):
        message = self.refused(2, "org/tiny")
        self.assertIn("tiny-F32.gguf, tiny-Q8_0.gguf", message)
        self.assertIn("org/tiny:Q4_K_M", message)
        self.assertIn("there are", self.refused(2, "org/tiny:Q4_0"))
        self.assertTrue(self.pull("org/tiny", "--hf-file", "tiny-F32.gguf").stdout.strip().endswith("tiny-F32.gguf"))
        self.assertIn("--revision", self.refused(2, "org/tiny:F32", "--revision", "v9"))
        self.assertIn("no such repository", self.refused(2, "org/absent"))
        self.assertIn("no name of a model", self.refused(2, "../etc"))
        self.assertIn("no model is named", self.refused(2))

    def test_goes_on_where_it_was(self):
        (self.folder / "blobs").mkdir(parents=True)
        (self.folder / "blobs" / f"{self.sha}.incomplete").write_bytes(self.gguf[:1000])
        result = json.loads(self.pull("org/tiny:F32", "-o", "json").stdout)
        self.assertEqual(self.hub.gets()[0][2]["Range"], "bytes=1000-")
        self.assertEqual(result["fetched"], len(self.gguf) - 1000)
        self.assert_complete()

    def test_servers_without_ranges(self):
        (self.folder / "blobs").mkdir(parents=True)
        (self.folder / "blobs" / f"{self.sha}.incomplete").write_bytes(b"x" * 1000)
        self.hub.faults = ["no ranges"]
        self.pull("org/tiny:F32")
        self.assert_complete()

    def test_servers_that_send_another_range(self):
        (self.folder / "blobs").mkdir(parents=True)
        (self.folder / "blobs" / f"{self.sha}.incomplete").write_bytes(self.gguf[:1000])
        self.hub.faults = ["other range"]
        self.pull("org/tiny:F32")
        self.assert_complete()
        self.assertEqual([r[2].get("Range") for r in self.hub.gets()], ["bytes=1000-"] * 2)

    def test_two_at_once_download_once(self):
        self.hub.faults = ["hang"]
        start = lambda: subprocess.Popen([DLLM, "pull", "org/tiny:F32"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         env=clean_environment(**self.environment()))
        first = start()
        self.assertTrue(self.hub.hanging.wait(60))
        second = start()
        while len(self.hub.gets("/api/models/")) < 2:
            time.sleep(0.01)
        time.sleep(0.5)  # time to begin a download, if the first did not keep it from doing so
        self.assertEqual(len(self.hub.gets()), 1)
        self.hub.released.set()
        for process in (first, second):
            _, err = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 0, err)
        self.assert_complete()
        self.assertEqual(len(self.hub.gets()), 2, "the cut one and its rest")

    def test_cut_connections(self):
        self.hub.faults = ["cut", "unavailable", "cut"]
        self.pull("org/tiny:F32")
        self.assert_complete()
        half = len(self.gguf) // 2
        self.assertEqual([r[2].get("Range") for r in self.hub.gets()],
                         [None, f"bytes={half}-", f"bytes={half}-", f"bytes={half + (len(self.gguf) - half) // 2}-"])

    def test_bodies_longer_than_announced(self):
        for fault in ("endless", "longer"):
            self.hub.faults, self.hub.sent = [fault] * 20, 0
            self.assertIn("more than the", self.refused(5, "org/tiny:F32"))
            self.assertEqual(len(self.hub.faults), 19, "it is not tried again")
            self.assertLess(self.hub.sent, 30 * len(self.gguf), "the transfer stops soon after the announced size")
            self.assertEqual(list((self.folder / "blobs").iterdir()), [])
        self.hub.faults = []
        self.pull("org/tiny:F32")
        self.assert_complete()

    def test_a_blob_of_another_size_is_fetched_again(self):
        self.pull("org/tiny:F32")
        blob = self.folder / "blobs" / self.sha
        os.truncate(blob, 1000)
        self.pull("org/tiny:F32")
        self.assert_complete()

    def test_wrong_bytes(self):
        self.hub.faults = ["wrong bytes"]
        message = self.refused(5, "org/tiny:F32")
        self.assertIn(self.sha, message)
        self.assertEqual(list((self.folder / "blobs").iterdir()), [])
        self.assertFalse((self.folder / "snapshots" / COMMIT / "tiny-F32.gguf").exists())
        self.pull("org/tiny:F32")
        self.assert_complete()

    def test_tokens(self):
        self.hub.token = "hf_secret"
        self.assertIn("HF_TOKEN", self.refused(2, "org/tiny:F32"))
        self.assertIn("refuses the token", self.refused(2, "org/tiny:F32", HF_TOKEN="wrong"))
        (self.cache).mkdir(exist_ok=True)
        (self.cache / "token").write_text("hf_secret\n")
        self.pull("org/tiny:F32")
        self.assert_complete()

    def test_tokens_stay_with_the_hub(self):
        elsewhere = Hub()
        elsewhere.repositories, elsewhere.large = self.hub.repositories, self.hub.large
        self.hub.token, self.hub.elsewhere = "hf_secret", elsewhere
        self.hub.blobs = False  # digests then come from the redirecting response
        self.pull("org/tiny:F32", HF_TOKEN="hf_secret")
        self.assert_complete()
        self.assertTrue(elsewhere.requests)
        for _, _, headers in elsewhere.requests:
            self.assertNotIn("Authorization", headers)
        elsewhere.shutdown()
        elsewhere.server_close()

    def test_paths_cannot_leave_the_cache(self):
        self.hub.repositories["org/evil"] = {"../../../evil.gguf": b"x"}
        self.assertIn("could leave the cache", self.refused(3, "org/evil"))

    def test_interrupt_keeps_what_has_come(self):
        self.hub.faults = ["hang"]
        process = subprocess.Popen([DLLM, "pull", "org/tiny:F32"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=clean_environment(**self.environment()))
        self.assertTrue(self.hub.hanging.wait(60))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn(b"stopped", err)
        self.hub.released.set()
        self.pull("org/tiny:F32")
        self.assert_complete()


class Models(HubCase):
    def test_run_from_a_hub_and_without_it(self):
        args = ("run", "-hf", "org/tiny:F32", "Solve 17+4.")
        self.assertEqual(self.ok(*args, **self.environment()).stdout, "21\n")
        asked = len(self.hub.requests)
        self.assertEqual(self.ok(*args, "--offline", **self.environment()).stdout, "21\n")
        self.assertEqual(self.ok(*args, **self.environment(HF_HUB_OFFLINE="1")).stdout, "21\n")
        self.assertEqual(len(self.hub.requests), asked, "the hub was asked")
        gone = self.ok(*args, **self.environment(HF_ENDPOINT="http://127.0.0.1:9"))
        self.assertEqual(gone.stdout, "21\n")
        self.assertIn("using the cached files", gone.stderr)
        self.assertIn("not in the cache", self.fails(2, "run", "-hf", "org/other", "x", "--offline", **self.environment()))
        self.assertIn("given twice", self.fails(2, "run", *args[1:], "-m", SHIPPED, **self.environment()))
        self.assertIn("-hf", self.fails(2, "run", "--offline", "x", **self.environment()))

    def test_split_models(self):
        parts = files.split_gguf(SHIPPED.read_bytes(), 3)
        self.hub.repositories["org/split"] = {f"tiny-F32-0000{i + 1}-of-00003.gguf": part
                                              for i, part in enumerate(parts)}
        self.hub.large.update(self.hub.repositories["org/split"])
        args = ("run", "-hf", "org/split:F32", "Solve 17+4.", "-o", "json")
        answer = json.loads(self.ok(*args, **self.environment()).stdout)
        whole = json.loads(self.ok("run", "Solve 17+4.", "-o", "json").stdout)
        self.assertEqual((answer["text"], answer["hash"], answer["confidence"]),
                         (whole["text"], whole["hash"], whole["confidence"]))
        self.assertEqual(len(self.hub.gets()), 3)
        first = self.pull("org/split:F32").stdout.strip()
        self.assertTrue(first.endswith("tiny-F32-00001-of-00003.gguf"), first)
        self.ok("quantize", first, self.dir / "q8.gguf", "Q8_0")
        self.ok("quantize", SHIPPED, self.dir / "whole.gguf", "Q8_0")
        self.assertEqual(self.ok("run", "-m", self.dir / "q8.gguf", "Solve 17+4.").stdout,
                         self.ok("run", "-m", self.dir / "whole.gguf", "Solve 17+4.").stdout)
        del self.hub.repositories["org/split"]["tiny-F32-00002-of-00003.gguf"]
        shutil.rmtree(self.cache / "models--org--split")
        self.assertIn("00002-of-00003", self.fails(2, *args, **self.environment()))

    def test_checkpoints(self):
        checkpoint = self.dir / "checkpoint"
        checkpoint.mkdir()
        files.write_llada(checkpoint)
        self.hub.repositories["org/checkpoint"] = {p.name: p.read_bytes() for p in checkpoint.iterdir()}
        self.hub.repositories["org/checkpoint"]["original/model.bin"] = b"not wanted"
        self.hub.large.add("model.safetensors")
        folder = self.pull("org/checkpoint").stdout.strip()
        self.assertEqual(folder, str(self.cache / "models--org--checkpoint" / "snapshots" / COMMIT))
        self.assertEqual(sorted(os.listdir(folder)), sorted(p.name for p in checkpoint.iterdir()))
        self.ok("convert", folder, "-o", self.dir / "checkpoint.gguf")
        self.ok("run", "-hf", "org/checkpoint", "--canvas-length", "8", "--raw", "hello", **self.environment())

    def test_other_programs_flags_are_no_cry_for_help(self):
        for args in (("inspect", "-hf", "x"), ("run", "-vh", "x"), ("tokenize", "-zh")):
            self.assertIn("unknown flag", self.fails(2, *args))
        self.assertIn("no such flag", self.fails(2, "run", "-nkvo", "99", "x"))


if __name__ == "__main__":
    unittest.main()

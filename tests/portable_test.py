"""The static or portable program where nothing else is: in a folder that holds only the file (and glibc, for the
portable one), and in other releases of Debian. Needs root; releases of Debian need debootstrap and a mirror, which is the
one that apt uses here.

    python3 portable_test.py PATH/TO/dllm [--suites bullseye,trixie] [--roots FOLDER]

Ends with 77, and a word, without root. FOLDER keeps the releases between runs (default: build/roots).
"""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

from debian_root import NoRoot, debian_root

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import tarball  # noqa: E402

QUESTION = "Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?"
HASH = "#96953692ed956716"
MODEL = ROOT / "models" / "tiny-llada-f32.gguf"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "hub.dllm.test"
RESOLVER = "127.0.0.153"  # of the loopback, where no other resolver is
OPTIONS = argparse.Namespace(program=None, suites=[], roots=ROOT / "build" / "roots")


def inside(root, *command, **environment):
    """Runs a command with `root` as its whole file system."""
    return subprocess.run([shutil.which("chroot"), root, *map(str, command)], capture_output=True, text=True, timeout=120, check=False,
                          env={"PATH": "/usr/bin:/bin", "HOME": "/", **environment})


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Resolver(threading.Thread):
    """Answers every question for an address of NAME with 127.0.0.1, and all others with "no such name"."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((RESOLVER, 53))
        self.asked = []

    def run(self):
        while True:
            question, client = self.socket.recvfrom(512)
            labels, at = [], 12
            while question[at]:
                labels.append(question[at + 1 : at + 1 + question[at]].decode())
                at += 1 + question[at]
            kind = struct.unpack("!H", question[at + 1 : at + 3])[0]
            name = ".".join(labels)
            self.asked.append(name)
            known, address = name == NAME, kind == 1
            reply = question[:2] + struct.pack("!HHHHH", 0x8180 if known else 0x8183, 1, int(known and address), 0, 0)
            reply += question[12 : at + 5]
            if known and address:
                reply += b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + bytes([127, 0, 0, 1])
            self.socket.sendto(reply, client)


class Handler(http.server.BaseHTTPRequestHandler):
    """A hub with one model."""

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        data = MODEL.read_bytes()
        if self.path.startswith("/api/models/"):
            data = json.dumps({"sha": COMMIT, "siblings": [{"rfilename": MODEL.name, "size": len(data)}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", '"one"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


def certificate(folder):
    """A certificate of NAME that signs itself, and its key."""
    bundle, key = folder / "ca.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}",
                    "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", key, "-out", bundle], check=True,
                   capture_output=True)
    return bundle, key


class Portable(unittest.TestCase):
    running = None

    def empty_root(self):
        """A folder that holds only the program, at its top."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        shutil.copy(OPTIONS.program, root / "dllm")
        if self.form == "portable":
            for name in set(re.findall(r"(?:=> |^\s)(/\S+)", output("ldd", OPTIONS.program), re.M)):
                self.assertRegex(pathlib.Path(name).name, tarball.GLIBC)
                (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(os.path.realpath(name), root / name[1:])
        return root

    def answers(self, root, program="/dllm"):
        told = inside(root, program, "run", QUESTION)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn(HASH, told.stderr)

    @classmethod
    def setUpClass(cls):
        cls.form = tarball.form_of(OPTIONS.program)

    def test_a_gpu_is_for_the_portable_one(self):
        if self.form == "static":
            told = inside(self.empty_root(), "/dllm", "run", "--backend", "vulkan", "Solve 17+4.")
            self.assertNotEqual(told.returncode, 0)
            self.assertRegex(told.stderr, r"dllm-[0-9.]+-linux-\*-portable\.tar\.xz")
            return
        told = inside(self.empty_root(), "/dllm", "run", "--backend", "vulkan", "Solve 17+4.")
        self.assertIn("mesa-vulkan-drivers", told.stderr)
        if not list(pathlib.Path("/usr/share/vulkan/icd.d").glob("lvp_icd*")):
            self.skipTest("there is no driver for the processor")
        told = subprocess.run([OPTIONS.program, "run", "--backend", "vulkan", "Solve 17+4."], capture_output=True, text=True,
                              check=False)
        self.assertEqual((told.returncode, told.stdout.strip()), (0, "21"), told.stderr)

    def test_needs_no_loader(self):
        if self.form == "portable":
            self.skipTest("it does")
        headers = subprocess.run(["readelf", "-Wld", OPTIONS.program], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("INTERP", headers)
        self.assertNotIn("NEEDED", headers)
        told = subprocess.run(["ldd", OPTIONS.program], capture_output=True, text=True, check=False)
        self.assertRegex(told.stdout + told.stderr, "statically linked|not a dynamic executable")

    def test_answers_in_an_empty_folder(self):
        root = self.empty_root()
        before = sorted(os.listdir(root))
        self.answers(root)
        self.assertEqual(sorted(os.listdir(root)), before)

    def test_simulates_in_an_empty_folder(self):
        told = inside(self.empty_root(), "/dllm", "run", "--backend", "npu", "Solve 17+4.")
        self.assertEqual((told.returncode, told.stdout.strip()), (0, "21"), told.stderr)

    def test_reads_a_model(self):
        root = self.empty_root()
        shutil.copy(MODEL, root / "model.gguf")
        told = inside(root, "/dllm", "run", "-m", "/model.gguf", QUESTION)
        self.assertIn(HASH, told.stderr)

    @contextlib.contextmanager
    def hub(self):
        """A hub with a certificate: its address and the bundle that verifies it."""
        with tempfile.TemporaryDirectory() as folder:
            bundle, key = certificate(pathlib.Path(folder))
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(bundle, key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"https://{NAME}:{server.server_port}", bundle
            server.shutdown()
            server.server_close()

    def resolver(self):
        """One for all tests: it keeps its port."""
        if Portable.running is None:
            try:
                Portable.running = Resolver()
            except OSError as busy:
                self.skipTest(f"no port for a resolver: {busy}")
            Portable.running.start()
        return Portable.running

    def prepare_names(self, root, switch):
        (root / "etc").mkdir(exist_ok=True)
        (root / "etc/resolv.conf").write_text(f"nameserver {RESOLVER}\n")
        (root / "etc/nsswitch.conf").write_text(switch)

    def pull(self, root, url, **environment):
        return inside(root, "/dllm", "pull", "org/model", HF_ENDPOINT=url, HF_HUB_CACHE="/models", **environment)

    def test_downloads_in_an_empty_folder(self):
        """Names by a resolver; certificates from each place that a distribution has them in."""
        resolver = self.resolver()
        with self.hub() as (url, bundle):
            for place in ("etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem",
                          "etc/ssl/cert.pem"):
                root = self.empty_root()
                self.prepare_names(root, "hosts: mymachines resolve files mdns4_minimal dns\npasswd: sss files\n")
                untrusted = self.pull(root, url)
                self.assertNotEqual(untrusted.returncode, 0)
                self.assertIn("set SSL_CERT_FILE", untrusted.stderr)
                (root / place).parent.mkdir(parents=True)
                shutil.copy(bundle, root / place)
                told = self.pull(root, url)
                self.assertEqual(told.returncode, 0, (place, told.stderr))
                self.assertTrue(list((root / "models").rglob("*.gguf")), place)
            root = self.empty_root()
            self.prepare_names(root, "hosts: files dns\n")
            shutil.copy(bundle, root / "mine.pem")
            self.assertEqual(self.pull(root, url, SSL_CERT_FILE="/mine.pem").returncode, 0)
            self.assertIn(NAME, resolver.asked)
            absent = self.pull(root, url.replace(NAME, "absent.dllm.test"), SSL_CERT_FILE="/mine.pem")
            self.assertIn("resolve", absent.stderr)

    def debian(self, suite):
        try:
            return debian_root(suite, OPTIONS.roots)
        except NoRoot as error:
            self.skipTest(str(error))

    def test_answers_in_other_releases(self):
        for suite in OPTIONS.suites:
            with self.subTest(suite=suite):
                root = self.debian(suite)
                shutil.copy(OPTIONS.program, root / "dllm")
                self.answers(root)

    def test_downloads_in_other_releases(self):
        """There, /etc/nsswitch.conf may name modules that belong to another glibc."""
        self.resolver()
        for suite in OPTIONS.suites:
            with self.subTest(suite=suite), self.hub() as (url, bundle):
                root = self.debian(suite)
                shutil.copy(OPTIONS.program, root / "dllm")
                shutil.rmtree(root / "models", ignore_errors=True)
                self.prepare_names(root, "hosts: nis compat hesiod dns files\npasswd: compat nis\n")
                shutil.copy(bundle, root / "mine.pem")
                told = self.pull(root, url, SSL_CERT_FILE="/mine.pem")
                self.assertEqual(told.returncode, 0, told.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--suites", type=lambda text: text.split(","), default=[])
    parser.add_argument("--roots", type=pathlib.Path, default=OPTIONS.roots)
    _, rest = parser.parse_known_args(namespace=OPTIONS)
    if os.geteuid() != 0:
        print("skipped: only root may change the root folder")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()

"""What must not happen: lost files, undetected damage, waiting forever, a terminal left in raw mode.

    python3 cli_safety_test.py PATH/TO/dllm [unittest arguments]
"""

import os
import pty
import re
import resource
import select
import shutil
import signal
import stat
import subprocess
import termios
import time
import unittest

import cli_test_files as files
from cli_case import DLLM, CliCase, clean_environment, needs_address_space, needs_npu

WAIT = 120  # seconds for what should take one, on a busy machine


def wait_for(condition, what):
    end = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("timeout: " + what)
        time.sleep(0.01)


class Safety(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        hf = cls.dir / "tiny"
        hf.mkdir()
        files.write_llada(hf)
        cls.model = cls.dir / "tiny.gguf"
        subprocess.run([DLLM, "convert", hf, "-o", cls.model, "--type", "f32"], check=True, capture_output=True,
                       env=clean_environment())

    def setUp(self):
        self.box = self.dir / self.id().split(".")[-1]
        self.box.mkdir()

    def start(self, *args, **kwargs):
        return subprocess.Popen([DLLM, *map(str, args)], stdin=kwargs.pop("stdin", subprocess.DEVNULL),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), **kwargs)

    def limited(self, code, *args, **kwargs):
        """Fails by itself with the code within the time."""
        process = self.start(*args, **kwargs)
        try:
            out, err = process.communicate(timeout=WAIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail(f"{args} waits")
        codes = code if isinstance(code, tuple) else (code,)
        self.assertIn(process.returncode, codes, (args, err))
        return err.decode()

    def names(self):
        return sorted(os.listdir(self.box))


class Writers(Safety):
    def expected(self, kind):
        target = self.dir / f"{self.id()}-{kind}.gguf"
        self.ok("quantize", self.model, target, kind)
        return target.read_bytes()

    def test_two_writers_of_one_target(self):
        contents = [self.expected("Q8_0"), self.expected("F16")]
        target = self.box / "q.gguf"
        for _ in range(5):
            both = [self.start("quantize", self.model, target, kind, "--force") for kind in ("Q8_0", "F16")]
            self.assertEqual([p.wait(WAIT) for p in both], [0, 0])
            for process in both:
                process.communicate()
            self.assertIn(target.read_bytes(), contents)
            self.assertEqual(self.names(), ["q.gguf"])

    def test_one_of_many_without_force(self):
        target = self.box / "q.gguf"
        several = [self.start("quantize", self.model, target, kind) for kind in ("Q8_0", "F16", "F32", "BF16")]
        codes = sorted(p.wait(WAIT) for p in several)
        for process in several:
            process.communicate()
        self.assertEqual(codes, [0, 2, 2, 2])
        self.ok("inspect", target)
        self.assertEqual(self.names(), ["q.gguf"])

    def test_targets_that_are_no_regular_files(self):
        victim = self.box / "victim"
        victim.write_text("precious")
        (self.box / "link").symlink_to(victim)
        (self.box / "dangling").symlink_to("nowhere")
        os.mkfifo(self.box / "pipe")
        targets = ["link", "dangling", "pipe"]
        try:
            os.mknod(self.box / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
            targets.append("null")
        except OSError:
            pass  # not root
        before = self.names()
        for name in targets:
            for command in (("quantize", self.model, self.box / name, "Q8_0"),
                            ("quantize", self.model, self.box / name, "Q8_0", "--force"),
                            ("logits", "--tokens", "1", "-o", self.box / name)):
                self.limited(2, *command)
        self.assertEqual(victim.read_text(), "precious")
        self.assertEqual(self.names(), before)
        if "null" in targets:
            self.assertTrue(stat.S_ISCHR(os.stat(self.box / "null").st_mode))

    def test_a_source_named_like_the_old_temporary(self):
        source = self.box / "m.gguf.part"
        shutil.copy(self.model, source)
        self.ok("quantize", source, self.box / "m.gguf", "Q8_0")
        self.assertEqual(source.read_bytes(), self.model.read_bytes())
        os.link(source, self.box / "other.gguf")
        self.fails(2, "quantize", source, self.box / "other.gguf", "Q8_0", "--force")
        self.assertEqual(source.read_bytes(), self.model.read_bytes())

    def test_what_stands_where_the_old_temporary_was(self):
        victim = self.box / "victim"
        victim.write_text("precious")
        (self.box / "s.gguf.part").symlink_to(victim)
        os.mkfifo(self.box / "f.gguf.part")
        for name in ("s.gguf", "f.gguf"):
            self.ok("quantize", self.model, self.box / name, "Q8_0")
        self.assertEqual(victim.read_text(), "precious")

    @needs_npu
    def test_an_input_is_no_output(self):
        program = self.box / "x.asm"
        program.write_text("C_BREAK\n")
        text = program.read_text()
        self.limited((2, 3), "npu", "asm", program, "-o", program)
        self.assertEqual(program.read_text(), text)

    @needs_npu
    def test_a_full_disk_leaves_nothing(self):
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

        program, sweep, items = (self.dir / name for name in ("full.asm", "full.toml", "full.jsonl"))
        program.write_text("S_ADDI_INT gp1, gp0, 1\n" * 100 + "C_BREAK\n")
        sweep.write_text('name = "t"\nmodel = "llada-8b"\n[device]\nbase = "dart-2048"\n"memory.stacks" = [1, 2]\n')
        items.write_text('{"task": "sum", "prompt": "2+3=", "answer": "5"}\n')
        results = self.dir / "full.sqlite"
        self.ok("npu", "sweep", sweep, "--db", results)
        several = ("npu", "sampling", "--vocab", "512", "--sweep", "batch=1,2")
        step = ("--layers", "1", "--rows", "1", "--batch", "1")
        for command in (("quantize", self.model, self.box / "q.gguf", "Q8_0"),
                        ("logits", "--tokens", "1", "-o", self.box / "l.f32"),
                        ("compare", "--items", items, "a: -n 4", "--plot", self.box / "m.svg"),
                        ("npu", "asm", program, "-o", self.box / "x.bin"),
                        ("npu", "compile", *step, "-o", self.box / "k.asm"),
                        ("npu", "dram", "--requests", "100", "--commands", self.box / "c.txt"),
                        ("npu", "run", program, "--trace", self.box / "r.txt"),
                        ("npu", "run", program, "--dump", f"vram@0:64={self.box}/v.npy"),
                        (*several, "--csv", self.box / "s.csv"), (*several, "--svg", self.box / "s.svg"),
                        ("npu", "sampling", "--vocab", "512", "--trace", self.box / "s.json"),
                        ("npu", "sweep", sweep, "--db", results, "--csv", self.box / "w.csv"),
                        ("npu", "sweep", sweep, "--db", results, "--svg", self.box / "w.svg"),
                        ("npu", "trace", program, "--perfetto", self.box / "p.json")):
            self.assertIn("cannot write", self.limited(3, *command, preexec_fn=small))
        chat = self.start("chat", stdin=subprocess.PIPE, preexec_fn=small)
        _, err = chat.communicate(f"/save {self.box}/chat.json\n".encode(), timeout=WAIT)
        self.assertEqual(chat.returncode, 3, err)
        self.assertEqual(self.names(), [])

    def big(self):
        model = self.dir / "big.gguf"
        if not model.exists():
            self.ok("make-model", "--shape", "llada-8b", "--layers", "1", "--vocab", "2048", "-o", model)
        return model

    def test_signals_remove_temporaries(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGINT):
            process = self.start("quantize", self.big(), self.box / "q.gguf", "Q4_0", "-t", "1")
            wait_for(lambda: self.names() or process.poll() is not None, "a temporary")
            process.send_signal(number)
            process.wait(WAIT)
            process.communicate()
            if process.returncode != 0:  # the machine may have been too fast
                self.assertIn(process.returncode, (-number, 130))
                self.assertEqual(self.names(), [])
            for name in self.names():
                (self.box / name).unlink()

    def test_kill_leaves_what_the_next_writer_sweeps(self):
        target = self.box / "q.gguf"
        whole = self.expected("Q8_0")
        for _ in range(10):
            process = self.start("quantize", self.big(), target, "Q4_0", "-t", "1", "--force")
            wait_for(lambda: any(n.endswith(".part") for n in self.names()) or process.poll() is not None, "a temporary")
            process.kill()
            process.wait(WAIT)
            process.communicate()
            self.ok("quantize", self.model, target, "Q8_0", "--force")
            self.assertEqual(self.names(), ["q.gguf"])
            self.assertEqual(target.read_bytes(), whole)


class Mapped(Safety):
    def ask(self, change):
        """A conversation whose model changes between two messages."""
        model = self.box / "m.gguf"
        shutil.copy(self.model, model)
        chat = self.start("chat", "-m", model, "--canvas-length", "8", "--exact-length", stdin=subprocess.PIPE)
        chat.stdin.write(b"he he\n/stats\n")
        chat.stdin.flush()
        ready, _, _ = select.select([chat.stdout], [], [], WAIT)
        self.assertTrue(ready)
        change(model)
        out, err = chat.communicate(b"/clear\nhe\n", timeout=WAIT)
        return chat.returncode, err.decode()

    def test_truncated(self):
        code, err = self.ask(lambda model: os.truncate(model, 5000))
        self.assertEqual(code, 3, err)
        self.assertIn("changed while it was read", err)

    def test_rewritten_with_the_same_size(self):
        def rewrite(model):
            with open(model, "r+b") as file:
                file.seek(-64, os.SEEK_END)
                file.write(bytes(64))

        code, err = self.ask(rewrite)
        self.assertEqual(code, 3, err)
        self.assertIn("changed while it was read", err)

    def test_replaced_by_another(self):
        def replace(model):
            shutil.copy(self.model, self.box / "new.gguf")
            os.replace(self.box / "new.gguf", model)

        code, err = self.ask(replace)
        self.assertEqual(code, 0, err)  # the map keeps the file that was opened


class Resources(Safety):
    @needs_address_space
    def test_memory(self):
        # With less than the program itself the kernel ends it.
        program = (os.path.getsize(DLLM) >> 20) + 2
        for megabytes in (*range(program, program + 41), 100, 200, 400, 1000):
            def tight(limit=megabytes << 20):
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

            # 127: the dynamic loader finds no room for the libraries
            self.limited((0, 4, 127), "run", "-m", self.model, "--raw", "--canvas-length", "4", "-t", "100", "he",
                         preexec_fn=tight)

    def test_threads(self):
        if os.geteuid() == 0:
            self.skipTest("root's processes are not counted")

        def few():
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

        self.limited((0, 4), "run", "-m", self.model, "--raw", "-n", "4", "-t", "100", "he", preexec_fn=few)

    def test_closed_descriptors(self):
        for command in (("run", "-n", "4", "-"), ("chat",), ("tokenize", "-"), ("run", "-n", "4")):
            err = self.limited((2, 3), *command, stdin=None, preexec_fn=lambda: os.close(0))
            self.assertIn("error: ", err)
        self.limited(3, "inspect", preexec_fn=lambda: os.close(1))
        self.limited(0, "inspect", preexec_fn=lambda: os.close(2))
        self.limited((0, 3), "quantize", self.model, self.box / "q.gguf", "Q8_0",
                     preexec_fn=lambda: [os.close(fd) for fd in (0, 1, 2)])
        self.ok("inspect", self.box / "q.gguf")


class Inputs(Safety):
    def test_kinds_and_bounds(self):
        pipe = self.box / "pipe"
        os.mkfifo(pipe)
        for path in (pipe, "/dev/zero", "/dev/random"):
            for command in (("inspect", path), ("eval", path), ("npu", "asm", path), ("npu", "disasm", path),
                            ("run", "-f", path), ("run", "--chat-template-file", path, "x"), ("run", "-m", path, "x"),
                            ("tokenize", "-m", path, "x"), ("quantize", path, self.box / "q.gguf", "Q8_0"),
                            ("npu", "devices", path), ("npu", "sweep", path), ("npu", "dram", "--trace", path),
                            ("compare", "--file", path), ("convert", path, "-o", self.box / "c.gguf")):
                self.limited((2, 3), *command)
        with open("/dev/zero", "rb") as zero:
            self.assertIn("more than", self.limited(3, "run", "-f", "-", stdin=zero))

    def test_process_substitution(self):
        result = subprocess.run(["bash", "-c", f"{DLLM} tokenize -m {self.model} -f <(printf 'he')"], check=False,
                                capture_output=True, env=clean_environment(), timeout=WAIT)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_mask_ids(self):
        metadata = files.vocab_only_metadata("llada")
        content = self.model.read_bytes()
        key = b"tokenizer.ggml.mask_token_id"
        at = content.index(key) + len(key) + 4
        self.assertEqual(int.from_bytes(content[at:at + 4], "little"), metadata["tokenizer.ggml.mask_token_id"])
        for value in (258, 97, 0xffffffff, 100000):
            wrong = self.box / f"{value}.gguf"
            wrong.write_bytes(content[:at] + value.to_bytes(4, "little") + content[at + 4:])
            line = self.limited(3, "run", "-m", wrong, "--canvas-length", "4", "he")
            self.assertIn("mask", line)
            self.assertNotIn("-1", line)


class Terminals(Safety):
    def spawn(self):
        master, slave = pty.openpty()
        before = termios.tcgetattr(slave)
        process = subprocess.Popen([DLLM, "chat"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                   env=clean_environment(TERM="xterm"))
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        text = b""
        end = time.monotonic() + WAIT
        while b"> " not in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", text) and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                text += os.read(master, 4096)
        wait_for(lambda: termios.tcgetattr(slave)[3] != before[3], "the raw mode")
        return process, slave, before

    def test_signals_restore_it(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            process, slave, before = self.spawn()
            process.send_signal(number)
            process.wait(WAIT)
            self.assertEqual(process.returncode, -number)
            self.assertEqual(termios.tcgetattr(slave)[:4], before[:4])

    def test_stop_and_go_on(self):
        process, slave, before = self.spawn()
        ours = termios.tcgetattr(slave)
        process.send_signal(signal.SIGTSTP)

        def state():
            with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0]

        # An orphaned process group is not stopped by SIGTSTP; then the handler continues at once.
        wait_for(lambda: state() == "T" or termios.tcgetattr(slave)[:4] == ours[:4], "the stop")
        if state() == "T":
            self.assertEqual(termios.tcgetattr(slave)[:4], before[:4])
            process.send_signal(signal.SIGCONT)
            wait_for(lambda: termios.tcgetattr(slave)[:4] == ours[:4], "the raw mode")
        process.terminate()
        process.wait(WAIT)
        self.assertEqual(termios.tcgetattr(slave)[:4], before[:4])


class RunCode(Safety):
    ITEM = ('{"prompt":"import os\\n\\ndef f():\\n    ","entry_point":"f","canonical_solution":"    return 1\\n",'
            '"test":"def check(c):\\n    assert c() == 1\\n"}\n')

    def test_what_is_missing_is_said(self):
        items = self.box / "items.jsonl"
        items.write_text(self.ITEM)
        self.assertIn("--run-code", self.fails(2, "eval", items, "--canvas-length", "16"))
        forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\""
        inside = ["unshare", "-Ur", "sh", "-c", forbid, "sh", DLLM, "eval", str(items), "--canvas-length", "16"]
        probe = subprocess.run(inside[:4] + [forbid, "sh", "true"], check=False, capture_output=True)
        if probe.returncode != 0:
            self.skipTest("no user namespaces to forbid them in")
        refused = subprocess.run([*inside, "--run-code"], check=False, capture_output=True, env=clean_environment(),
                                 timeout=WAIT)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        if b"DLLM_SANDBOX=ON" in refused.stderr:
            self.skipTest("a build without the sandbox")
        self.assertIn(b"namespaces", refused.stderr)
        self.assertIn(b"--run-code=unsafe", refused.stderr)
        allowed = subprocess.run([*inside, "--run-code=unsafe"], check=False, capture_output=True,
                                 env=clean_environment(), timeout=WAIT)
        self.assertEqual(allowed.returncode, 0, allowed.stderr)


del Safety

if __name__ == "__main__":
    unittest.main()

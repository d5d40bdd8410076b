"""Models in callbacks, threads and child processes, and interpreters that exit meanwhile."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import dllm
from dllm import npu

WAIT = 600  # seconds, for what would otherwise hang


class InDecoder(dllm.Decoder):
    """Asks a model while another answer, or the same model's, is decided."""

    name = "test-asks"
    ask = None

    def decode(self, context, candidates):
        type(self).ask()
        return candidates.position[:4]


def run(script, *, code=0):
    """A program of its own, which must end by itself."""
    result = subprocess.run(
        [sys.executable, "-c", "import dllm, os, sys, threading, time, gc, signal\n" + script],
        capture_output=True, text=True, timeout=WAIT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.returncode == code, (result.returncode, result.stderr)
    return result


def answer_in_child(model, queue):
    queue.put(model.generate("3+4=", length=8).hash)


class CallbackTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = dllm.Model.load(threads=2)
        cls.hash = cls.model.generate("Solve 17+4.", length=16).hash
        cls.slow = {"length": 16, "algorithm": "low-confidence", "exact_length": True}
        cls.outer = cls.model.generate("3+4=", **cls.slow).hash

    def ask(self, *_):
        self.assertEqual(self.model.generate("Solve 17+4.", length=16).hash, self.hash)

    def test_callbacks_ask_the_same_model(self):
        calls = [
            self.ask,
            lambda step: [self.model.logits([1, 2, 3]), self.model.choose("3+4=", ["7", "8"]), None][-1],
            lambda step: list(self.model.stream("Solve 17+4.", length=16)) and None,
            lambda step: self.model.generate_batch(["Solve 17+4."] * 2, length=16) and None,
        ]
        for number, call in enumerate(calls):
            with self.subTest(number):
                self.assertEqual(self.model.generate("3+4=", on_step=call, **self.slow).hash, self.outer)

    def test_threads_of_callbacks_ask_the_same_model(self):
        def threaded(step):
            thread = threading.Thread(target=self.ask)
            thread.start()
            thread.join()

        self.assertEqual(self.model.generate("3+4=", on_step=threaded, **self.slow).hash, self.outer)

    def test_decoders_ask_the_same_model(self):
        InDecoder.ask = self.ask
        alone = self.model.generate("3+4=", algorithm="test-asks", length=16)
        with self.model.stream("3+4=", algorithm="test-asks", length=16) as stream:
            list(stream)
        self.assertEqual(stream.answer, alone)
        self.assertEqual(
            self.model.generate_batch(["3+4="] * 2, algorithm="test-asks", length=16, on_answer=self.ask), [alone] * 2
        )

    def test_endless_recursion_is_an_error(self):
        def again(*_):
            self.model.generate("3+4=", length=4, on_step=again)

        with self.assertRaisesRegex(dllm.UsageError, "nested"):
            again()
        InDecoder.ask = lambda: list(self.model.stream("3+4=", algorithm="test-asks", length=4))
        with self.assertRaisesRegex(dllm.UsageError, "nested"):
            self.model.generate("3+4=", algorithm="test-asks", length=4)
        self.ask()

    def test_streams_run_beside_each_other(self):
        long = {"length": 400, "algorithm": "low-confidence", "exact_length": True}
        pairs = zip(self.model.stream("Tell me", **long), self.model.stream("3+4=", **long))
        for number, _ in enumerate(pairs):
            if number % 50 == 0:
                self.ask()
        self.assertEqual(number, 399)

    def test_a_simulated_device_refuses_and_says_what_to_do(self):
        device = dllm.Model.load(backend="npu", warnings=False)
        seen = []

        def ask(step):
            with self.assertRaises(dllm.UsageError) as raised:
                device.generate("3+4=", length=4)
            seen.append(raised.exception.hint)

        device.generate("3+4=", length=4, on_step=ask)
        self.assertIn("load the model twice", seen[0])

    def test_streams_closed_and_dropped_in_their_own_thread(self):
        for end in (lambda: self.stream.close(), lambda: [delattr(self, "stream"), gc.collect()]):
            ready = threading.Event()

            def once(end=end, ready=ready):
                ready.wait()
                if hasattr(self, "stream"):
                    end()

            InDecoder.ask = once
            self.stream = self.model.stream("3+4=", algorithm="test-asks", length=64)
            ready.set()
            end_by = time.monotonic() + WAIT
            while self.stream_runs() and time.monotonic() < end_by:
                time.sleep(0.01)
            self.assertLess(time.monotonic(), end_by)
            self.ask()

    def stream_runs(self):
        try:
            return self.stream.answer is None
        except AttributeError:  # its decoder's thread has dropped it
            return False

    def test_a_stream_read_by_its_own_decoder_is_an_error(self):
        ready = threading.Event()

        def read():
            ready.wait()
            next(stream)

        InDecoder.ask = read
        stream = self.model.stream("3+4=", algorithm="test-asks", length=16)
        ready.set()
        with self.assertRaisesRegex(dllm.UsageError, "own decoder"):
            list(stream)

    def test_models_that_nobody_else_holds(self):
        holder = [dllm.Model.load(threads=2, warnings=False)]

        def forget(step):
            holder.clear()
            gc.collect()

        self.assertTrue(holder[0].generate("3+4=", length=8, on_step=forget).ids)
        stream = dllm.Model.load(threads=2, warnings=False).stream("3+4=", length=8)
        gc.collect()
        self.assertTrue(list(stream))

    def test_errors_in_callbacks_of_streams_and_batches(self):
        def fail(*_):
            raise LookupError("mine")

        InDecoder.ask = fail
        for _ in range(3):
            with self.assertRaisesRegex(LookupError, "mine"):
                list(self.model.stream("3+4=", algorithm="test-asks", length=8))
            with self.assertRaisesRegex(LookupError, "mine"):
                self.model.generate_batch(["3+4="], length=8, on_answer=fail)
            self.model.stream("3+4=", algorithm="test-asks", length=8)  # whose error nobody asks for
        self.ask()

    def interrupted(self, call):
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            timer.start()
            call()
            time.sleep(WAIT)
        self.assertLess(time.monotonic() - begin, WAIT / 2)
        timer.join()
        self.ask()

    def test_ctrl_c_ends_every_wait(self):
        model, release = self.model, threading.Event()
        InDecoder.ask = lambda: time.sleep(0.05)
        slow = {"algorithm": "test-asks", "length": 400, "exact_length": True}
        self.interrupted(lambda: model.generate("3+4=", **slow))
        self.interrupted(lambda: model.generate_batch(["3+4="] * 3, **slow))
        self.interrupted(lambda: list(model.stream("3+4=", **slow)))
        InDecoder.ask = release.wait  # a decoder that waits for something
        stream = model.stream("3+4=", **slow)
        self.interrupted(lambda: next(stream))
        self.interrupted(stream.close)
        release.set()
        self.interrupted(lambda: npu.run(npu.assemble("C_LOOP_START gp1, 4000000\n" + "S_ADDI_INT gp2, gp2, 1\n" * 64
                                                      + "C_LOOP_END gp1\n"), npu.device("plena-64")))
        device = dllm.Model.load(backend="npu", warnings=False)
        held, release = threading.Event(), threading.Event()
        other = threading.Thread(
            target=lambda: device.generate("3+4=", length=4, on_step=lambda step: [held.set(), release.wait()] and None)
        )
        other.start()
        held.wait()
        self.interrupted(lambda: device.generate("3+4=", length=4))
        release.set()
        other.join()


@unittest.skipUnless(hasattr(os, "fork"), "no fork")
class ForkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = dllm.Model.load(threads=2)
        cls.hash = cls.model.generate("3+4=", length=8).hash

    def test_multiprocessing(self):
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        children = [context.Process(target=answer_in_child, args=(self.model, queue)) for _ in range(3)]
        for child in children:
            child.start()
        got = [queue.get(timeout=WAIT) for _ in children]
        for child in children:
            child.join(WAIT)
        self.assertEqual(got, [self.hash] * 3)
        self.assertEqual([child.exitcode for child in children], [0] * 3)
        with context.Pool(2) as pool:  # as a DataLoader's workers: the model comes with the fork
            self.assertEqual(pool.map_async(_hash_of, range(4)).get(WAIT), [self.hash] * 4)
        self.assertEqual(self.model.generate("3+4=", length=8).hash, self.hash)

    def test_children_that_exit_like_programs(self):
        run("""
model = dllm.Model.load(threads=2)
want = model.generate("3+4=", length=8).hash
stream = model.stream("3+4=", length=400, algorithm="low-confidence", exact_length=True)
next(stream)
child = os.fork()
if child == 0:
    signal.alarm(500)
    try:
        next(stream)
    except dllm.UsageError as error:
        assert "parent" in str(error), error
    own = dllm.Model.load(threads=2)
    assert own.generate("3+4=", length=8).hash == want
    assert len(list(own.stream("3+4=", length=8, algorithm="low-confidence"))) > 0
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stream.close()

def fork(step):  # in a callback: both go on
    if step.step == 0:
        children.append(os.fork())
        if children[0] == 0:
            signal.alarm(500)
children = []
assert model.generate("3+4=", length=8, on_step=fork).hash == want
if children[0] == 0:
    assert model.generate("3+4=", length=8).hash == want
    sys.exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 8
""")

    def test_a_model_in_use_at_the_fork(self):
        run("""
model = dllm.Model.load(threads=2)
stop = False
def work():
    while not stop:
        model.generate("3+4=", length=64, algorithm="low-confidence", exact_length=True)
thread = threading.Thread(target=work)
thread.start()
try:
    for _ in range(10):
        child = os.fork()
        if child == 0:
            signal.alarm(500)
            try:
                model.generate("3+4=", length=8)
            except dllm.UsageError as error:
                assert "load the model again" in error.hint
            assert dllm.Model.load(threads=2).generate("3+4=", length=8).ids
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
finally:
    stop = True
thread.join()
""")


def _hash_of(_):
    return ForkTest.model.generate("3+4=", length=8).hash


class ExitTest(unittest.TestCase):
    """The interpreter ends cleanly, whatever is still running."""

    SLOW = 'dict(length=450, algorithm="low-confidence", exact_length=True)'

    def test_streams_that_nobody_finished(self):
        run(f"stream = dllm.Model.load(threads=2).stream('3+4=', **{self.SLOW}); next(stream)")
        run(f"stream = dllm.Model.load(threads=2).stream('3+4=', **{self.SLOW})")
        run(f"stream = dllm.Model.load(threads=2).stream('3+4=', **{self.SLOW}); cycle = [stream]; cycle.append(cycle)")

    def test_streams_with_decoders_in_python(self):
        run(f"""
class Slow(dllm.Decoder):
    name = "slow"
    def decode(self, context, candidates):
        time.sleep(0.001)
        return candidates.position[:1]
stream = dllm.Model.load(threads=2).stream("3+4=", **{self.SLOW} | dict(algorithm="slow"))
next(stream)
""")

    def test_daemon_threads(self):
        script = """
model = dllm.Model.load(threads=2)
begun = threading.Event()
def work():
    while True:
        model.CALL
        begun.set()
threading.Thread(target=work, daemon=True).start()
begun.wait(2)
"""
        for call in (f"generate('3+4=', on_step=lambda step: begun.set(), **{self.SLOW})",
                     "generate('3+4=', length=8)", f"generate_batch(['3+4='], **{self.SLOW})"):
            with self.subTest(call):
                result = run(script.replace("CALL", call))
                self.assertNotIn("Fatal", result.stderr)

    def test_errors_end_programs(self):
        result = run(f"stream = dllm.Model.load().stream('3+4=', **{self.SLOW}); next(stream); 1 / 0", code=1)
        self.assertIn("ZeroDivisionError", result.stderr)


if __name__ == "__main__":
    unittest.main()

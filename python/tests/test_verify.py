"""python -m dllm.verify: what it compares and finds. The comparisons themselves need torch, transformers and gguf."""

import contextlib
import io
import json
import pathlib
import shutil
import tempfile
import unittest
from importlib.util import find_spec
from unittest import mock

import numpy as np
from dllm import Error, Model, UnsupportedError, UsageError, _dllm, verify
from dllm import _verify_weights as weights

ROOT = pathlib.Path(__file__).parents[2]
TOKENIZER = ROOT / "src" / "model" / "testdata" / "tiny-llada"
TINY = ROOT / "models" / "tiny-llada-f32.gguf"
INSTALLED = all(find_spec(name) for name in ("torch", "transformers", "gguf", "safetensors"))
NEEDED = unittest.skipUnless(INSTALLED, "torch, transformers and gguf are not installed")


def call(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = verify.main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


class Parts(unittest.TestCase):
    def test_sequences_have_one_length_and_masks(self):
        model = Model.load(TINY)
        mask = model.special_tokens["mask"]
        found = verify.sequences(model, 40)
        self.assertEqual([len(one) for one in found], [40] * (len(_dllm.verify_prompts()) + 1))
        prompt = model.apply_template([{"role": "user", "content": _dllm.verify_prompts()[0]}])
        self.assertEqual(found[0], (prompt + [mask] * 40)[:40])
        self.assertEqual([i for i, token in enumerate(found[-1]) if token == mask], list(range(2, 40, 3)))

    def test_texts_are_those_of_the_program(self):
        texts = _dllm.verify_texts()
        self.assertEqual(len(texts), 200)
        self.assertEqual(len(set(texts)), 200)

    def test_differences(self):
        rng = np.random.default_rng(3)
        theirs = rng.standard_normal((2, 5, 7)).astype(np.float32)
        self.assertEqual(verify.differences(theirs, theirs),
                         {"rows": 10, "error": 0, "relative_error": 0, "kl": 0, "largest_kl": 0, "same_choice": 1})
        ours = theirs + np.float32(3)  # the same distribution
        found = verify.differences(ours, theirs)
        self.assertAlmostEqual(found["error"], 3, places=5)
        self.assertAlmostEqual(found["relative_error"], 3 / np.abs(theirs).max(), places=5)
        self.assertLess(found["largest_kl"], 1e-10)
        ours = theirs.copy()
        ours[1, 4, :] = np.roll(ours[1, 4, :], 1)
        found = verify.differences(ours, theirs)
        self.assertEqual(found["same_choice"], 0.9)
        first, second = (np.exp(row) / np.exp(row).sum() for row in (theirs[1, 4].astype(float), ours[1, 4].astype(float)))
        wanted = float((first * np.log(first / second)).sum())
        self.assertAlmostEqual(found["largest_kl"], wanted, places=6)
        self.assertAlmostEqual(found["kl"], wanted / 10, places=6)
        ours[0, 0, 0] = np.nan
        self.assertEqual(verify.differences(ours, theirs)["relative_error"], float("inf"))

    def report(self, **logits):
        return {"reference": {"same_numbers": True, "types": ["F32"]}, "texts": {"count": 200},
                "logits": {"float32": {"relative_error": 1e-5, **logits}}}

    def test_what_is_a_disagreement(self):
        report = self.report()
        self.assertEqual(verify.disagreements(report, verify.tolerance(report, None)), [])
        for error in (0.002, float("nan"), float("inf")):
            worse = self.report(relative_error=error)
            self.assertEqual(len(verify.disagreements(worse, verify.tolerance(worse, None))), 1, error)
        report["reference"]["types"] = ["BF16", "F32"]
        self.assertEqual(verify.tolerance(report, None), verify.TOLERANCE_BF16)
        report["reference"]["same_numbers"] = False
        self.assertIsNone(verify.tolerance(report, None))
        self.assertEqual(verify.tolerance(report, 0.5), 0.5)
        report["texts"]["differing"] = [3, 8]
        self.assertIn("2 of 200", verify.disagreements(report, None)[0])

    def test_names_and_rows_of_gguf(self):
        rename = lambda name: weights.renamed(name, weights._LAYER, weights._WHOLE, "blk.")
        self.assertEqual(rename("model.layers.11.self_attn.q_proj.bias"), "blk.11.attn_q.bias")
        self.assertEqual(rename("lm_head.weight"), "output.weight")
        rows = np.arange(12.0).reshape(12, 1)
        stored = np.array([0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11.0]).reshape(12, 1)
        np.testing.assert_array_equal(weights.halves_apart(stored, 2), rows)

    def test_who_sees_whom_is_the_importers_rule(self):
        """Of folders without weights: names, keys of config.json and its auto_map."""
        sizes = {"vocab_size": 768, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
                 "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
        own = {"AutoModelForCausalLM": "modeling_seed_diffcoder.SeedDiffcoderForCausalLM"}
        cases = [("tiny-bd3lm", "A2DQwen3LMHeadModel", {}, "a2d-qwen3", 32),
                 ("tiny-mdlm", "A2DQwen3LMHeadModel", {}, "a2d-qwen3", 0),
                 ("tiny", "A2DQwen3LMHeadModel", {"_name_or_path": "owner/tiny-bd3lm"}, "a2d-qwen3", 32),
                 ("other-bd3lm", "A2DQwen3LMHeadModel", {"block_size": 8}, "a2d-qwen3", 8),
                 ("coder", "LlamaForCausalLM", {"auto_map": own}, "stable-diffcoder", 4),
                 ("llama", "LlamaForCausalLM", {}, "llama", 1),
                 ("SDAR-8B-Chat-b32", "SDARForCausalLM", {}, "sdar", 32),
                 ("sdar", "SDARForCausalLM", {"block_size": 16}, "sdar", 16)]
        with tempfile.TemporaryDirectory() as temporary:
            for name, kind, changes, architecture, attention in cases:
                with self.subTest(name):
                    folder = pathlib.Path(temporary, name)
                    folder.mkdir()
                    (folder / "config.json").write_text(json.dumps(sizes | {"architectures": [kind]} | changes))
                    self.assertEqual(_dllm.describe_model(str(folder)), (architecture, attention))
            for name, found in [("SDAR-8B-Chat-b32", ("sdar", 8)), ("sdar", ("sdar", 16))]:
                folder = pathlib.Path(temporary, name)  # config.json, generation_config.json, the name, in this order
                (folder / "generation_config.json").write_text(json.dumps({"block_length": 8}))
                self.assertEqual(_dllm.describe_model(str(folder)), found)
        self.assertEqual(_dllm.describe_model(str(TINY)), ("llada", 0))
        with self.assertRaises(Error):
            _dllm.describe_model("/nonexistent/model.gguf")

    def test_without_the_packages(self):
        with mock.patch.dict("sys.modules", {"torch": None}):
            code, out, err = call("-m", TINY)
        self.assertEqual((code, out), (2, ""))
        self.assertIn("pip install torch", err)


@NEEDED
class Comparisons(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def folder(self, name, kind, **changes):
        """A random model that transformers saves, under another class's name."""
        import torch
        import transformers as t

        torch.manual_seed(5)
        sizes = dict(vocab_size=768, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=16, max_position_embeddings=256, tie_word_embeddings=False,
                     initializer_range=0.2, bos_token_id=None, eos_token_id=2)
        model = getattr(t, f"{kind}ForCausalLM")(getattr(t, f"{kind}Config")(**sizes)).float()
        folder = self.dir / name
        model.save_pretrained(folder)
        for file in TOKENIZER.iterdir():
            if file.name.startswith("tokenizer"):
                shutil.copy(file, folder)
        config = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def errors(self, *words):
        code, out, err = call("--json", self.dir / "report.json", "--length", 24, *words)
        self.assertEqual(code, 0, out + err)
        return json.loads((self.dir / "report.json").read_text())

    def test_a_gguf_file_of_a_masked_model(self):
        report = self.errors("-m", TINY)
        self.assertLess(report["logits"]["float32"]["relative_error"], 1e-5)
        self.assertEqual(report["reference"]["attention"], 0)
        self.assertNotIn("differing", report["texts"])

    def test_another_mask_is_a_disagreement(self):
        code, _, err = call("-m", TINY, "--length", 24, "--attention", 1)
        self.assertEqual(code, verify.MISMATCH)
        self.assertIn("--attention", err)

    def test_folders_of_every_family(self):
        cases = [("Llama", "LlamaForCausalLM", 1), ("Qwen2", "Qwen2ForCausalLM", 1), ("Qwen3", "Qwen3ForCausalLM", 1),
                 ("Qwen2", "DreamModel", 0), ("Qwen3", "SDARForCausalLM", 4), ("Qwen3", "A2DQwen3LMHeadModel", 0),
                 ("Qwen2", "Fast_dLLM_QwenForCausalLM", 32), ("Llama", "StableDiffcoderForCausalLM", 4),
                 ("Qwen3", "BD3LMQwen3LMHeadModel", 32)]
        for kind, name, attention in cases:
            with self.subTest(name):
                report = self.errors("-m", self.folder(name, kind, architectures=[name], mask_token_id=767))
                self.assertLess(report["logits"]["float32"]["relative_error"], 1e-5)
                self.assertEqual(report["reference"]["attention"], attention)
                self.assertEqual(report["texts"]["differing"], [])

    def test_a_layer_at_a_time(self):
        import torch
        from dllm._verify_layers import open_reference

        reference = open_reference(weights.GgufWeights(str(TINY)), False, None)
        layers = reference.model.model.layers
        inside = lambda: [any(p.device.type != "meta" for p in layer.parameters()) for layer in layers]
        seen = []
        for layer in layers:
            layer.register_forward_hook(lambda *_: seen.append(sum(inside())), prepend=True)
        self.assertFalse(any(inside()))
        first = reference.logits([[5, 6, 7]])
        self.assertEqual(seen, [1] * len(layers))
        self.assertFalse(any(inside()))
        np.testing.assert_array_equal(first, reference.logits([[5, 6, 7]]))
        self.assertEqual(torch.nn.Linear(2, 2).weight.device.type, "cpu")

    def test_what_the_model_was_made_from(self):
        """Other numbers are reported and are no disagreement; other ids are one."""
        model = self.folder("first", "Qwen3")
        other = self.folder("second", "Qwen3")
        import safetensors.torch as st

        tensors = st.load_file(other / "model.safetensors")
        tensors["model.norm.weight"] *= 1.5
        st.save_file(tensors, other / "model.safetensors", {"format": "pt"})
        report = self.errors("-m", model, "--reference", other)
        self.assertGreater(report["logits"]["float32"]["relative_error"], 0.1)
        tokenizer = json.loads((other / "tokenizer.json").read_text())
        tokenizer["model"]["merges"] = tokenizer["model"]["merges"][5:]
        (other / "tokenizer.json").write_text(json.dumps(tokenizer))
        code, _, err = call("-m", model, "--reference", other, "--length", 24)
        self.assertEqual(code, verify.MISMATCH)
        self.assertIn("of 200 texts", err)

    def test_code_of_the_folder(self):
        model = self.folder("plain", "Qwen2")
        own = self.folder("own", "Qwen2", architectures=["OwnForCausalLM"], model_type="own",
                          auto_map={"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"})
        (own / "own.py").write_text(
            "from transformers import Qwen2Config, Qwen2ForCausalLM\n"
            "class OwnConfig(Qwen2Config):\n    model_type = 'own'\n"
            "class OwnForCausalLM(Qwen2ForCausalLM):\n    config_class = OwnConfig\n")
        code, _, err = call("-m", model, "--reference", own, "--length", 24)
        self.assertEqual(code, 2)
        self.assertIn("--trust-remote-code", err)
        report = self.errors("-m", model, "--reference", own, "--trust-remote-code", "--tolerance", 1e-5)
        self.assertEqual(report["reference"]["class"], "OwnForCausalLM")

    def test_what_is_refused(self):
        with self.assertRaises(UnsupportedError):
            weights.GgufWeights(str(ROOT / "models" / "tri-f16.gguf")).dimensions()
        with self.assertRaises(UsageError):
            from dllm._verify_layers import open_reference

            open_reference(weights.GgufWeights(str(TINY)), True, None)
        missing = self.folder("missing", "Qwen2")
        import safetensors.torch as st

        tensors = st.load_file(missing / "model.safetensors")
        del tensors["model.layers.2.mlp.up_proj.weight"]
        st.save_file(tensors, missing / "model.safetensors", {"format": "pt"})
        code, _, err = call("-m", TINY, "--reference", missing, "--length", 24)
        self.assertEqual(code, 2)
        self.assertIn("model.layers.2.mlp.up_proj.weight", err)


if __name__ == "__main__":
    unittest.main()

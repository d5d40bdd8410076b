"""Fast tests of the third recipe; run with `python3 -m pytest train_tiny` from the folder above."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from train_tiny import gguf
from train_tiny.cli import main
from train_tiny.harder import tasks
from train_tiny.model import Llada
from train_tiny.recipes import RECIPES
from train_tiny.tokenizer import Tokenizer, train_merges
from train_tiny.tri import adapter, decode, evaluate, export, rows, schedule

RECIPE = RECIPES["tri"]
SMALL = replace(RECIPE.config, d_model=32, n_layers=2, n_heads=2, mlp_hidden_size=48)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_merges(RECIPE.tokenizer_texts(0), RECIPE.merges))


def small_model(seed=1):
    model = Llada(SMALL).eval()
    model.reset_parameters(seed)
    torch.manual_seed(seed)
    torch.nn.init.normal_(model.model["transformer"].ff_out.weight, std=0.6)
    return model


def some(count, ease=0.3, seed=0):
    rng = random.Random(seed)
    return [tasks.draw(rng, ease, {name: 1}) for name in tasks.MAKERS for _ in range(count)]


def some_rows(tokenizer, count=4, partial=0.5):
    now = replace(schedule.stage(0, 1_000_000, 500), partial=partial)
    rng = random.Random(3)
    return [rows.make_row(e, tokenizer, now, rng) for e in some(count)], now


def test_blocks_cover_the_answer_and_begin_with_a_known_token(tokenizer):
    made, _ = some_rows(tokenizer)
    for r in made:
        assert len(r.starts) == len(r.shown) == len(r.ids) - r.begin - r.answer >= r.answer
        for begin in set(r.starts):
            assert begin < r.answer and 1 <= r.starts.count(begin) <= rows.WIDEST
            assert r.shown[begin]
        assert r.ids[r.begin:r.begin + r.answer] == r.ids[r.begin + r.answer:][:r.answer]


def test_targets_are_the_next_token_and_the_masked_one(tokenizer):
    made, now = some_rows(tokenizer)
    batch = rows.collate(made, tokenizer, now)
    mask = tokenizer.special["<|mdm_mask|>"]
    for i, r in enumerate(made):
        answer = r.ids[r.begin:r.begin + r.answer] + [tokenizer.special["<|eot_id|>"]]
        first, last = r.begin - 1, r.begin + r.answer
        assert batch.targets[i, first:last].tolist() == answer
        assert (batch.weights[i, :first] == 0).all() and (batch.weights[i, first:last] == now.causal_weight).all()
        for j, shown in enumerate(r.shown):
            assert (batch.inputs[i, last + j] == mask) == (not shown) == (batch.weights[i, last + j] > 0)
            if j <= r.answer:
                assert batch.targets[i, last + j] == answer[j]
        assert (batch.weights[i, len(r.ids):] == 0).all()


def test_rows_see_what_a_decoder_shows(tokenizer):
    """Through the model: the two halves of a row are the causal pass and the drafts that `decode` makes."""
    made, now = some_rows(tokenizer, 1, partial=0.0)
    batch, model = rows.collate(made, tokenizer, now), small_model()
    with torch.no_grad():
        together = model(batch.inputs, layout=batch.layout)
    for i, r in enumerate(made):
        known = r.ids[:r.begin + r.answer]
        decoder = decode.Decoder(model, tokenizer, [], 1)
        causal = decoder.logits(known)
        assert torch.allclose(together[i, :len(known)].double(), causal, atol=1e-4)
        for begin in sorted(set(r.starts)):
            width, at = r.starts.count(begin), r.begin + r.answer + begin
            alone = decoder.logits(known[:r.begin + begin + 1] + [decoder.mask] * (width - 1), block=width)
            assert torch.allclose(together[i, at:at + width].double(), alone[-width:], atol=1e-4)


def test_batched_rounds_are_those_of_the_decoder(tokenizer):
    model, encoded, found = small_model(2), [], []
    for e in some(1, 0.6):
        prompt = tokenizer.encode(e.prompt)
        run = decode.decode(model, tokenizer, prompt, 24, "self-speculation")
        encoded.append((prompt, run.output_ids))
        found.append(run.rounds)
    # The last round of a decode is cut by the answer's length, and one position is not drafted.
    for (count, tokens), rounds_, (_, answer) in zip(evaluate.rounds(model, encoded, tokenizer), found, encoded):
        assert tokens == len(answer) - 1 and count - 1 <= rounds_ <= count


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_speculation_says_what_autoregression_does(tokenizer, seed):
    model = small_model(seed)
    adapted = adapter.adapt(small_model(seed))
    for e in some(1, 0.6, seed):
        prompt = tokenizer.encode(e.prompt)
        plain, drafted = (decode.decode(model, tokenizer, prompt, 24, mode) for mode in ("ar", "self-speculation"))
        assert plain.output_ids == drafted.output_ids
        assert plain.nfe == len(plain.output_ids)
        assert drafted.nfe <= 1 + 2 * drafted.rounds + 1
        filled = decode.decode(model, tokenizer, prompt, 24, "diffusion")
        assert filled.output_ids[0] == plain.output_ids[0] and filled.commit_step[0] == 0
    assert len(adapted) == SMALL.n_layers


def test_adapter_changes_drafts_only(tokenizer):
    made, now = some_rows(tokenizer, 1)
    batch, model = rows.collate(made, tokenizer, now), small_model()
    drafted = adapter.draft_rows(batch)
    for i, r in enumerate(made):
        assert drafted[i].nonzero()[:, 0].tolist() == list(range(r.begin + r.answer, len(r.ids)))
    with torch.no_grad():
        before = model(batch.inputs, layout=batch.layout)
        adapted = adapter.adapt(model, rank=4)
        adapter.set_drafted(adapted, drafted)
        assert torch.allclose(model(batch.inputs, layout=batch.layout), before)     # B is zero
        for matrix in adapted:
            torch.nn.init.normal_(matrix.lora_b, std=0.5)
        after = model(batch.inputs, layout=batch.layout)
    clean = ~drafted & (batch.weights > 0)
    assert torch.allclose(after[clean], before[clean], atol=1e-5)
    assert not torch.allclose(after[drafted], before[drafted], atol=1e-2)


def test_adapter_learns_what_the_causal_pass_says(tokenizer, monkeypatch):
    made, now = some_rows(tokenizer, 1)
    batch, model = rows.collate(made, tokenizer, now), small_model()
    with torch.no_grad():
        logits = model(batch.inputs, layout=batch.layout)
    targets = adapter.causal_targets(logits, batch.layout[0])
    for i, r in enumerate(made):
        known = r.ids[:r.begin + r.answer]
        best = decode.Decoder(model, tokenizer, [], 1).logits(known).argmax(-1)
        at = r.begin + r.answer
        assert targets[i, at:at + r.answer].tolist() == best[r.begin - 1:r.begin + r.answer - 1].tolist()
    before = [p.clone() for p in model.parameters()]
    trainer = adapter.AdapterTrainer(model, tokenizer, 40 * batch.inputs.numel())
    monkeypatch.setattr(rows, "draw_batches", lambda *_: [batch])
    first = trainer.train_step()
    trainer.run(log_every=1000)
    assert trainer.step == 40 and trainer.train_step() < 0.95 * first
    # Registered parameters of the model: the matrices are where they were.
    assert all(torch.equal(a, b) for a, b in zip(before, (p for n, p in model.named_parameters() if "lora" not in n)))


def gguf_file(model, path):
    """A file of the architecture llada with the model's weights: Q and K interleaved, as llama.cpp's converter does."""
    import struct
    names = {v: k for k, v in gguf.PARTS.items()}
    outside = {v: k for k, v in gguf.OUTSIDE.items()}
    tensors = {}
    for name, p in model.state_dict().items():
        parts = name.removeprefix("model.transformer.").removesuffix(".weight").split(".")
        array = p.numpy()
        if parts[0] == "blocks":
            if parts[2] in ("q_proj", "k_proj"):
                heads = model.config.n_heads
                array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
            tensors[f"blk.{parts[1]}.{names[parts[2]]}.weight"] = array
        else:
            tensors[f"{outside[parts[0]]}.weight"] = array
    data = export.gguf_string("general.architecture") + struct.pack("<I", 8) + export.gguf_string("llada")
    data += export.gguf_string("list") + struct.pack("<IIQ", 9, 4, 2) + struct.pack("<II", 5, 6)
    offset, body = 0, b""
    for n, (name, array) in enumerate(tensors.items()):
        array = array.astype("<f2") if n % 2 else array.astype("<f4")
        data += export.gguf_string(name) + struct.pack("<I", array.ndim)
        data += b"".join(struct.pack("<Q", d) for d in array.shape[::-1]) + struct.pack("<IQ", n % 2, offset)
        raw = array.tobytes()
        body += raw + b"\0" * (-len(raw) % 32)
        offset = len(body)
    blob = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), 2) + data
    path.write_bytes(blob + b"\0" * (-len(blob) % 32) + body)


def test_a_run_starts_from_a_gguf_file(tmp_path, tokenizer):
    model, again = small_model(), small_model(7)
    gguf_file(model, tmp_path / "m.gguf")
    again.load_state_dict(gguf.llada_weights(tmp_path / "m.gguf", SMALL))
    ids = torch.tensor([tokenizer.encode("Sums a1+2 b3*4")])
    assert torch.allclose(model(ids), again(ids), atol=2e-2)
    assert not torch.allclose(model(ids), small_model(7)(ids), atol=0.5)
    with pytest.raises(ValueError, match="not a GGUF"):
        gguf.read_gguf(__file__)
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "m.gguf").read_bytes()[:400])
    with pytest.raises(ValueError, match="cut.gguf"):
        gguf.read_gguf(tmp_path / "cut.gguf")


def test_exported_files_hold_the_model_and_its_adapter(tmp_path, tokenizer):
    model = small_model()
    export.export_model(model, tmp_path, 192)
    with open(tmp_path / "config.json", encoding="utf-8") as f:
        config = json.load(f)
    assert config["architectures"] == ["NemotronLabsDiffusionModel"] and config["block_size"] == 32
    again, half = export.load_model(tmp_path), export.load_model(tmp_path, half=True)
    ids = torch.tensor([tokenizer.encode("Sums a1+2 b3*4")])
    assert torch.equal(model(ids), again(ids)) and not torch.equal(model(ids), half(ids))
    adapted = adapter.adapt(again, rank=4)
    for matrix in adapted:
        torch.nn.init.normal_(matrix.lora_b, std=0.5)
    adapter.write_adapter(adapted, tmp_path)
    read = export.load_adapter(half, tmp_path)
    assert all(torch.equal(a.lora_b, b.lora_b) and torch.equal(a.lora_a, b.lora_a) for a, b in zip(adapted, read))
    export.write_adapter_gguf(adapted, tmp_path / "a.gguf")
    meta, tensors = gguf.read_gguf(tmp_path / "a.gguf")
    assert meta["adapter.lora.alpha"] == 4 * adapter.SCALE and len(tensors) == 2 * SMALL.n_layers
    assert np.array_equal(tensors["blk.1.attn_output.weight.lora_b"], adapted[1].lora_b.detach().numpy())


def test_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(RECIPES, "tri", replace(RECIPE, config=SMALL, golden_runs=2, gen_length=24))
    shared = ["--out", str(tmp_path), "--recipe", "tri"]
    assert main(["tasks", *shared]) == 0
    assert main(["tokenizer", *shared]) == 0
    gguf_file(small_model(), tmp_path / "start.gguf")
    assert main(["train", *shared, "--tokens", "12e3", "--from", str(tmp_path / "start.gguf"), "--log-every", "1"]) == 0
    assert main(["adapter", "--out", str(tmp_path), "--tokens", "5e3"]) == 0
    assert main(["evaluate", "--out", str(tmp_path), "--items", "2"]) == 0
    assert main(["evaluate", "--out", str(tmp_path), "--lines"]) == 1
    assert main(["export", "--out", str(tmp_path)]) == 0
    assert main(["golden", *shared]) == 0
    assert main(["golden", *shared, "--accuracy-items", "1"]) == 1
    said = capsys.readouterr().out
    assert "tokens per round |" in said and "adapter: " in said
    runs = {}
    for name in ("ar", "self-speculation", "adapter", "diffusion"):
        with open(tmp_path / "golden" / f"decode_{name}.json", encoding="utf-8") as f:
            runs[name] = json.load(f)["runs"]
        assert len(runs[name]) == 2
    for a, b, c in zip(runs["ar"], runs["self-speculation"], runs["adapter"]):
        assert a["output_ids"] == b["output_ids"] == c["output_ids"]

"""Fast tests; run with `python3 -m pytest train_tiny` from the folder above.

TRAIN_TINY_REFERENCE names a reference checkpoint; without it the tests that need
one are skipped.
"""

import json
import math
import os
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from train_tiny import solver, tasks
from train_tiny.cli import main
from train_tiny.data import draw_batches, make_row, mask_row
from train_tiny.decode import METHODS, candidates, choose, decode, factor_count, quota
from train_tiny.export import export_model, load_model, read_safetensors, write_safetensors
from train_tiny.golden import canvases, pick
from train_tiny.model import LayerKV, Llada, ModelConfig
from train_tiny.optim import orthogonalised
from train_tiny.schedule import stage
from train_tiny.tokenizer import EOT, MASK, SPECIAL, Tokenizer, chat, train_merges
from train_tiny.train import Trainer, run
from train_tiny.verify import check_logits, check_tasks, check_tokenizer

REFERENCE = os.environ.get("TRAIN_TINY_REFERENCE")
needs_reference = pytest.mark.skipif(not REFERENCE, reason="TRAIN_TINY_REFERENCE is not set")
BUDGET = 43_700_000


def some(count, level, seed=0):
    rng = random.Random(seed)
    return [tasks.draw(rng, level) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizer():
    texts = [chat(e.prompt) + e.answer + EOT for e in some(500, 2)]
    return Tokenizer(train_merges(texts, 200))


@pytest.fixture(scope="module")
def config(tokenizer):
    special = tokenizer.special
    return ModelConfig(d_model=32, n_layers=2, n_heads=2, mlp_hidden_size=64,
                       vocab_size=len(tokenizer), bos_token_id=special[SPECIAL[0]],
                       eos_token_id=special[SPECIAL[1]], mask_token_id=special[MASK])


def small_model(config, seed=0):
    model = Llada(config)
    model.reset_parameters(seed)
    # Training starts from a zero head, with which every comparison of logits would succeed.
    torch.manual_seed(seed)
    torch.nn.init.normal_(model.model["transformer"].ff_out.weight)
    return model.eval()


# Tasks

@pytest.mark.parametrize("level", range(3))
def test_generator_is_deterministic_and_agrees_with_the_solver(level):
    made = some(1500, level)
    assert made == some(1500, level)
    assert made != some(1500, level, seed=1)
    assert {e.task for e in made} == set(tasks.LEVELS[level].mix)
    assert solver.check([e.__dict__ for e in made]) == []


def test_held_out_prompts_are_distinct_and_never_trained_on():
    validation = tasks.held_out("validation", 200, 0)
    assert len({e.prompt for e in validation}) == 200
    assert {e.prompt for e in validation}.isdisjoint(e.prompt for e in some(3000, 2))
    assert {tasks.split(e.prompt) for e in validation} == {"validation"}


@pytest.mark.parametrize("prompt", [
    "Copy: a", "Sort: cat 3", "Max: 3 3", "Sum: 9 9 9 9", "Compute 40-1.", "",
    "Pairs: dog Leo, cat Ben. Find fish", "Leo has a dog. List all.",
    "Leo has 3 eggs. Leo loses 4. How many eggs are left?"])
def test_solver_refuses_what_the_generator_cannot_make(prompt):
    with pytest.raises(solver.Unreadable):
        solver.solve(prompt)


def test_solver_notices_a_wrong_answer():
    item = {"task": "arith", "prompt": "What is 2+3?", "answer": "6"}
    assert len(solver.check([item, {**item, "answer": "5"}])) == 1


def test_pick_deals_out_task_by_task_from_the_end():
    items = [{"task": t, "n": i} for i, t in enumerate(["sum", "math1", "sum", "math1"])]
    assert [i["n"] for i in pick(items, 3)] == [3, 2, 1]


# Tokenizer

def test_tokenizer_round_trip(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    for text in ["", "héllo 日本 🙂\r\n\n  \t'S it's 4", chat("2+2="), *map(chr, range(256))]:
        assert again.encode(text) == tokenizer.encode(text)
        assert again.decode(again.encode(text)) == text
    assert tokenizer.encode(" 7") == [tokenizer.vocab["Ġ"], tokenizer.vocab["7"]]


def test_merges_prefer_counts_then_older_symbols():
    assert train_merges(["ab ab cd cd ef"], 3) == [("a", "b"), ("c", "d"), ("Ġ", "cd")]
    with pytest.raises(ValueError, match="only 1 merges"):
        train_merges(["ab"], 5)


# Model and files

def test_export_loads_back(config, tmp_path):
    model = small_model(config)
    export_model(model, tmp_path)
    again = load_model(tmp_path)
    ids = torch.randint(0, config.vocab_size, (1, 20))
    assert torch.equal(model(ids), again(ids))
    names = read_safetensors(tmp_path / "model.safetensors")
    assert "model.transformer.blocks.1.ff_proj.weight" in names
    assert len(names) == 3 + 9 * config.n_layers


def test_damaged_safetensors_are_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": np.arange(6, dtype=np.float32).reshape(2, 3)})
    assert read_safetensors(path)["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    data = path.read_bytes()
    for broken in (data[:4], data[:-1], b"\xff" * 8 + data[8:], data[:9] + b"}" + data[10:]):
        path.write_bytes(broken)
        with pytest.raises(ValueError):
            read_safetensors(path)


def test_padding_does_not_change_the_other_rows(config):
    model = small_model(config)
    ids = torch.randint(0, 256, (1, 12))
    longer = torch.cat((ids, torch.randint(0, 256, (1, 5))), 1)
    pad = torch.zeros(1, 17, dtype=torch.bool)
    pad[:, 12:] = True
    assert torch.allclose(model(ids), model(longer, pad=pad)[:, :12], atol=1e-5)


@torch.no_grad()
def test_partial_pass_equals_full_pass_while_nothing_has_changed(config):
    model = small_model(config)
    ids = torch.randint(0, 256, (1, 30))
    cache = [LayerKV() for _ in range(config.n_layers)]
    full = model(ids, cache=cache)
    for first, last in ((10, 30), (10, 20)):
        part = model(ids[:, first:last], first=first, cache=cache)
        assert torch.allclose(full[:, first:last], part, atol=1e-5)


# Decoding

def ranked(confidences):
    logits = torch.tensor([[math.log(c / (1 - c)), 0.0, -1e9] for c in confidences])
    return candidates(logits, list(range(len(confidences))), mask_id=2)


def test_candidates_break_ties_downwards_and_skip_masks():
    logits = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 5.0]])
    found = candidates(logits, [4, 5, 6], mask_id=2)
    assert [(c.position, c.token) for c in found] == [(4, 0), (5, 1)]


@pytest.mark.parametrize("confidences, count", [
    ([0.3], 1), ([0.3, 0.1], 2), ([0.9, 0.6, 0.5, 0.4], 1), ([0.9, 0.7, 0.5, 0.4], 2),
    ([0.9, 0.8, 0.8, 0.1], 4), ([0.9, 0.8, 0.8, 0.7, 0.6], 3), ([0.99] * 5, 5)])
def test_factor_rule(confidences, count):
    assert factor_count(confidences, 1.0) == count


def test_threshold_and_fixed_rules():
    method = METHODS["threshold0.9"]
    assert choose(ranked([0.95, 0.91, 0.89]), method, 32, 0)[0] == 2
    assert choose(ranked([0.6, 0.599995, 0.59]), method, 32, 0)[0] == 2
    assert [quota(32, 5, s) for s in range(5)] == [7, 7, 6, 6, 6]


@pytest.mark.parametrize("name", METHODS)
def test_decode_fills_the_canvas(config, name):
    result = decode(small_model(config), [1, 2, 3], METHODS[name], 64, 32)
    assert len(result.output_ids) == 64 and config.mask_token_id not in result.output_ids
    assert set(result.commit_step) == set(range(result.nfe))
    assert max(result.commit_step[:32]) < min(result.commit_step[32:])
    if METHODS[name].steps:
        assert result.nfe == 2 * METHODS[name].steps


def test_canvases_mask_the_stated_share(tokenizer):
    items = [e.__dict__ for e in some(100, 0)]
    for c in canvases(tokenizer, items):
        n = c["prompt_length"]
        masked = sum(i == tokenizer.special[MASK] for i in c["input_ids"])
        assert masked == round(c["mask_ratio"] * (len(c["input_ids"]) - n))
        assert c["input_ids"][:n] == c["target_ids"][:n]


# Training

def test_rows_hold_prompt_answer_and_padding(tokenizer):
    rng = random.Random(0)
    at_end = stage(BUDGET - 1, BUDGET, 10_000)
    for example in some(200, 2):
        row = make_row(example, tokenizer, at_end, rng)
        mask_row(row, rng.random(), at_end, rng)
        assert tokenizer.decode(row.ids[:row.begin]) == chat(example.prompt)
        assert tokenizer.answer_text(row.ids[row.begin:]) == example.answer
        assert row.masked and max(row.masked) < len(row.weights) == len(row.ids) - row.begin


def test_cut_rows_hide_everything_behind_an_equals_sign(tokenizer):
    rng = random.Random(0)
    always = replace(stage(BUDGET // 2, BUDGET, 1000), cut_rows=1.0, cut_at_equals=1.0)
    row = make_row(tasks.Example("arith", "2+2=", "2+2=4\n#### 4"), tokenizer, always, rng)
    mask_row(row, 0.0, always, rng)
    assert row.equals == [4] and row.masked == list(range(4, len(row.weights)))


def test_batches_depend_on_seed_and_step_alone(tokenizer):
    now = stage(0, BUDGET, 0)
    first, again, other = (draw_batches(0, s, now, tokenizer) for s in (3, 3, 4))
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, again))
    assert not all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, other))
    assert all((b.inputs[b.pad] == b.targets[b.pad]).all() and not b.weights[b.pad].any()
               for b in first)


def test_schedule_ends_at_zero_and_scales_with_the_budget():
    assert stage(BUDGET - 1, BUDGET, 9999).muon_rate < 1e-6
    assert stage(6e6, BUDGET, 9999) == stage(6e5, BUDGET / 10, 9999)
    assert stage(29e6, BUDGET, 9999).adam_rate == pytest.approx(0.78 * 0.003)


def test_orthogonalised_matrix_has_singular_values_near_one():
    for shape in ((16, 16), (48, 16), (16, 48)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)))
        assert 0.3 < values.min() and values.max() < 1.4


def test_one_step_lowers_the_loss_on_its_own_batch(config, tokenizer):
    trainer = Trainer(config, tokenizer, BUDGET)
    trainer.step = 300  # past the warm-up, in which the step would be too small to see
    before = trainer.train_step()["loss"]
    trainer.step, trainer.tokens = 300, 0
    after = trainer.train_step()["loss"]
    assert after < before - 0.05


def test_resumed_run_equals_unbroken_run(config, tokenizer, tmp_path):
    for name in ("whole", "halves"):
        (tmp_path / name).mkdir()
    whole = Trainer(config, tokenizer, BUDGET)
    run(whole, tmp_path / "whole", stop_tokens=12_000)
    half = Trainer(config, tokenizer, BUDGET)
    run(half, tmp_path / "halves", stop_tokens=6_000)
    half = Trainer.resume(tmp_path / "halves" / "checkpoint.pt", tokenizer)
    run(half, tmp_path / "halves", stop_tokens=12_000)
    assert half.step == whole.step
    assert all(torch.equal(half.average[n], whole.average[n]) for n in whole.average)
    lines = (tmp_path / "halves" / "log.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["tokens"] == half.tokens


# Command line

def test_bad_arguments_are_explained(tmp_path, capsys):
    for arguments in (["train", "--out", "x", "--minutes", "-1"], ["golden"],
                      ["golden", "--out", "x", "--methods", "none"], ["train", "--tokens", "nan"]):
        with pytest.raises(SystemExit):
            main(arguments)
    assert main(["export", "--out", str(tmp_path)]) == 1
    assert "run train first" in capsys.readouterr().err


# Against a reference

@needs_reference
def test_reference_tasks_tokenizer_and_logits():
    checks = [*check_tasks(REFERENCE), *check_tokenizer(REFERENCE),
              *check_logits(REFERENCE, load_model(REFERENCE))]
    assert all(passed for passed, _ in checks), checks


@needs_reference
def test_reference_files_are_written_alike(tmp_path):
    Tokenizer.load(REFERENCE).save(tmp_path)
    export_model(load_model(REFERENCE), tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                 "config.json", "generation_config.json", "model.safetensors"):
        with open(os.path.join(REFERENCE, name), "rb") as f:
            assert (tmp_path / name).read_bytes() == f.read(), name

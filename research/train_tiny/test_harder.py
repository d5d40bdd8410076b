"""Fast tests of the second recipe; run with `python3 -m pytest train_tiny` from the folder above."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from train_tiny import data as train_data
from train_tiny import guesses, lines
from train_tiny.cli import main
from train_tiny.decode import METHODS, decode
from train_tiny.evaluate import Outcome, decode_batch, table
from train_tiny.harder import chained, data, schedule, solver, tasks
from train_tiny.model import Llada, ModelConfig
from train_tiny.recipes import RECIPES
from train_tiny.tokenizer import Tokenizer, chat, train_merges
from train_tiny.train import Trainer

RECIPE = RECIPES["harder"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_merges(RECIPE.tokenizer_texts(0), RECIPE.merges))


def some(count, ease, seed=0):
    rng = random.Random(seed)
    return [tasks.draw(rng, ease, {name: 1}) for name in tasks.MAKERS for _ in range(count)]


@pytest.mark.parametrize("ease", [0.0, 0.5, 1.0])
def test_answers_are_recomputed_by_other_code(ease):
    for e in some(40, ease):
        assert solver.solve(e.task, e.prompt) == e.answer, e


def test_lengths(tokenizer):
    for e in some(60, 0.0):
        length = len(tokenizer.encode(e.answer)) + 1
        assert 80 <= length <= data.CANVAS, e
        assert len(tokenizer.encode(chat(e.prompt))) + data.CANVAS <= RECIPE.config.max_sequence_length
    for e in some(20, 1.0):
        assert len(tokenizer.encode(e.answer)) < 50, e


def test_digits_and_signs_are_tokens_of_their_own(tokenizer):
    assert len(tokenizer.encode("a+8=45\n")) == 7
    assert len(tokenizer.encode("c2110201202")) == 11
    assert len(tokenizer) == RECIPE.config.vocab_size


def test_held_out_prompts_do_not_occur_in_training():
    held = tasks.held_out("validation", 60, 0)
    assert len({e.prompt for e in held}) == 60
    assert {e.task for e in held} == set(tasks.MAKERS)
    assert all(tasks.split(e.prompt) == "train" for e in some(20, 0.0))


def test_rows_mask_answers_only(tokenizer):
    now = schedule.stage(12e6, 20_000_000, 1000)
    rng = random.Random(1)
    for e in some(30, 0.3):
        row = data.make_row(e, tokenizer, now, rng.random(), rng)
        answer = tokenizer.encode(e.answer)
        shown = row.ids[row.begin:]
        assert row.masked and max(row.masked) < len(shown) == len(row.weights)
        common = min(len(answer), len(shown))
        assert shown[:common] == answer[:common]
        assert row.ids[:row.begin] == tokenizer.encode(chat(e.prompt))


def test_block_rows_are_clean_left_and_masked_right():
    now = schedule.stage(12e6, 20_000_000, 1000)
    rng, seen = random.Random(2), 0
    for _ in range(300):
        masked, weights, size = data.mask(192, 150, 0.5, now, rng)
        if weights == [1.0] * size:  # another kind of row, or no block to the right
            continue
        seen += 1
        last = weights.index(data.NEXT_WEIGHT)
        assert last % data.BLOCK == 0 and set(range(last, size)) <= set(masked)
        assert min(masked) >= last - data.BLOCK
        assert weights[last + data.BLOCK:] == [data.LATER_WEIGHT] * (size - last - data.BLOCK)
    assert seen > 100


def test_chained_rows_ask_for_every_line(tokenizer):
    rng = random.Random(4)
    for e in some(20, 0.3):
        row = chained.make_row(e, tokenizer, rng)
        n = len(row.segments)
        answer = row.ids[row.begin:row.begin + n]
        assert row.ids[row.begin + n:] == answer == tokenizer.encode(e.answer) + [
            tokenizer.special["<|eot_id|>"], tokenizer.special["<|endoftext|>"]]
        assert all(n <= i < 2 * n for i in row.masked)
        newline = tokenizer.encode("\n")[0]
        ends = [i for i in range(1, n) if row.segments[i] != row.segments[i - 1]]
        assert all(answer[i - 1] == newline for i in ends)
        assert len(ends) <= answer.count(newline) < 4 * (len(ends) + 1)


def test_chained_rows_cannot_see_what_they_are_asked(tokenizer):
    """Through the model, as a batch: a masked token depends on its segment's shown tokens and what is before."""
    rng = random.Random(5)
    rows = [chained.make_row(e, tokenizer, rng) for e in some(1, 0.6)]
    batch = train_data.collate(rows, tokenizer)
    config = ModelConfig(d_model=32, n_layers=3, n_heads=2, mlp_hidden_size=32, vocab_size=len(tokenizer),
                         bos_token_id=RECIPE.config.bos_token_id, eos_token_id=RECIPE.config.eos_token_id,
                         mask_token_id=RECIPE.config.mask_token_id)
    model = Llada(config).eval()
    model.reset_parameters(1)
    torch.nn.init.normal_(model.model["transformer"].ff_out.weight, std=0.6)
    with torch.no_grad():
        before = model(batch.inputs, pad=batch.pad, layout=batch.layout)
        for i, row in enumerate(rows):
            n, chosen = len(row.segments), rng.choice(row.segments)
            own = [j for j in range(n) if row.segments[j] == chosen]
            later = [j for j in range(n) if row.segments[j] > chosen]
            inputs = batch.inputs.clone()
            for j in own + later:
                inputs[i, row.begin + j] = 7            # the clean copy
            for j in later:
                inputs[i, row.begin + n + j] = 7        # later segments of the masked one
            inputs[i, row.begin + 2 * n:] = 7           # the padding
            after = model(inputs, pad=batch.pad, layout=batch.layout)
            asked = [row.begin + n + j for j in own]
            assert torch.equal(before[i, asked], after[i, asked])
            inputs = batch.inputs.clone()
            inputs[i, row.begin - 1] = 7
            assert not torch.equal(before[i, asked], model(inputs, pad=batch.pad, layout=batch.layout)[i, asked])
        # A single segment with the prompt is an ordinary row.
        row = rows[0]
        n = row.segments.count(1)
        plain = torch.cat((batch.inputs[:1, :row.begin], batch.inputs[:1, row.begin + len(row.segments):][:, :n]), 1)
        prompt = model(plain)
        bound = model(plain, layout=(torch.arange(row.begin + n)[None],
                                     torch.ones(1, row.begin + n, row.begin + n, dtype=torch.bool)))
        assert torch.allclose(prompt, bound, atol=1e-6)


def test_noisy_rows_show_wrong_tokens_and_ask_for_the_right_ones(tokenizer):
    now = schedule.stage(16e6, 20_000_000, 1000)
    rng, wrong, right = random.Random(3), 0, 0
    for e in some(40, 0.3):
        row = data.make_row(e, tokenizer, now, rng.random(), rng)
        assert not set(row.shown) & set(row.masked) and all(i < row.answer for i in row.shown)
        batch = train_data.collate([row], tokenizer)
        for i, token in row.shown.items():
            assert batch.inputs[0, row.begin + i] == token
            assert batch.targets[0, row.begin + i] == row.ids[row.begin + i]
            assert batch.weights[0, row.begin + i] == pytest.approx(row.weights[i])
            wrong += token != row.ids[row.begin + i]
            right += token == row.ids[row.begin + i]
    assert wrong > 20 and right > 50
    assert schedule.stage(1e6, 20_000_000, 300).noisy == 0


def small_model(tokenizer, n_layers=1):
    config = ModelConfig(d_model=32, n_layers=n_layers, n_heads=2, mlp_hidden_size=64, vocab_size=len(tokenizer),
                         bos_token_id=RECIPE.config.bos_token_id, eos_token_id=RECIPE.config.eos_token_id,
                         mask_token_id=RECIPE.config.mask_token_id)
    model = Llada(config).eval()
    model.reset_parameters(3)
    torch.manual_seed(3)
    torch.nn.init.normal_(model.model["transformer"].ff_out.weight, std=0.6)
    return model


def test_guesses_fill_masks_before_their_end(tokenizer):
    now = replace(schedule.stage(16e6, 20_000_000, 1000), guessing=1.0, chained=0.0)
    rng = random.Random(4)
    rows = [data.make_row(e, tokenizer, now, rng.random(), rng) for e in some(3, 0.0)]
    assert all(row.guess and not row.shown for row in rows)
    model, mask = small_model(tokenizer), RECIPE.config.mask_token_id
    batch = train_data.collate(rows, tokenizer)
    masked = batch.inputs == mask

    def filled(threshold, passes, which=None):
        which = range(len(rows)) if which is None else which
        chosen = {i: guesses.Guess(threshold, rows[i].guess.end, passes) for i in which}
        return guesses.committed(model, batch.inputs, batch.pad, chosen, mask)
    free = [sum(bool(masked[i, j]) for j in range(min(len(row.ids), row.guess.end))) for i, row in enumerate(rows)]
    assert max(free) > 20
    for i, row in enumerate(rows):
        assert row.guess.end - row.begin <= data.CANVAS and (row.guess.end - row.begin) % data.BLOCK == 0
        everything, some_ = filled(0.0, 1, [i]), filled(2.0, 3, [i])
        assert int((everything != batch.inputs).sum()) == free[i]
        assert int((some_ != batch.inputs).sum()) == min(3, free[i])
        for after in (everything, some_):
            changed = (after != batch.inputs).nonzero()
            assert all(r == i and c < row.guess.end and masked[r, c] for r, c in changed.tolist())
    # In a batch the same as separately, and the first pass commits the most certain token.
    together = filled(2.0, 1)
    with torch.no_grad():
        logits = model(batch.inputs, pad=batch.pad)
    logits[..., mask] = -torch.inf
    for i, row in enumerate(rows):
        if not free[i]:
            continue
        place = int((together[i] != batch.inputs[i]).nonzero())
        confidence, best = logits[i].softmax(-1).max(-1)
        here = [j for j in range(min(len(row.ids), row.guess.end)) if masked[i, j]]
        assert float(confidence[place]) == pytest.approx(max(float(confidence[j]) for j in here), abs=1e-6)
        assert int(together[i, place]) == int(best[place])


def test_wrong_guesses_weigh_more_and_targets_stay(tokenizer):
    now = replace(schedule.stage(16e6, 20_000_000, 1000), guessing=1.0, chained=0.0)
    rng = random.Random(5)
    batch = train_data.collate([data.make_row(e, tokenizer, now, rng.random(), rng) for e in some(2, 0.0)], tokenizer)
    inputs, weights, targets = batch.inputs, batch.weights.clone(), batch.targets.clone()
    guesses.fill(small_model(tokenizer), batch, RECIPE.config.mask_token_id)
    guessed = batch.inputs != inputs
    wrong = guessed & (batch.inputs != targets)
    assert wrong.sum() > 5 and torch.equal(batch.targets, targets)
    assert torch.equal(batch.weights[wrong], guesses.WRONG_WEIGHT * weights[wrong])
    assert torch.equal(batch.weights[~wrong], weights[~wrong])
    assert schedule.stage(14e6, 20_000_000, 300).guessing == 0


def test_curriculum_grows_and_rates_fall():
    early, late = schedule.stage(0, 20_000_000, 500), schedule.stage(15e6, 20_000_000, 5000)
    assert early.hardest < 0.3 and late.hardest == 1.0
    assert late.chained < early.chained
    assert schedule.stage(19.9e6, 20_000_000, 9000).muon_rate < 0.05 * late.muon_rate
    assert schedule.stage(19.9e6, 80_000_000, 9000).muon_rate > late.muon_rate


def test_batched_decoding_is_that_of_the_reference(tokenizer):
    model = small_model(tokenizer, 2)
    head = model.model["transformer"].ff_out.weight
    with torch.no_grad():  # the mask is never predicted, no answer ends: the two differ there
        for token in ("<|mdm_mask|>", "<|eot_id|>", "<|endoftext|>"):
            head[tokenizer.special[token]] = 0
    prompts = [tokenizer.encode(chat(e.prompt)) for e in some(1, 0.5)]
    batch = decode_batch(model, prompts, tokenizer, 64, 32, 0.9)
    for prompt, (ids, passes, blocks) in zip(prompts, batch):
        one = decode(model, prompt, METHODS["threshold0.9"], 64, 32)
        assert (ids, passes, blocks) == (one.output_ids, one.nfe, 2)


def test_a_few_steps_and_their_evaluation(tmp_path, capsys):
    shared = ["--out", str(tmp_path), "--recipe", "harder"]
    assert main(["tasks", *shared]) == 0
    assert main(["tokenizer", *shared]) == 0
    assert main(["train", *shared, "--tokens", "12e3", "--log-every", "1"]) == 0
    assert main(["train", *shared, "--tokens", "20e3"]) == 1
    assert main(["train", *shared, "--tokens", "20e3", "--extend"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["ce"] < lines[0]["ce"]
    assert main(["evaluate", "--out", str(tmp_path), "--items", "2", "--threshold", "0.01"]) == 0
    assert "| **all** | 2 |" in capsys.readouterr().out
    assert main(["evaluate", "--out", str(tmp_path), "--items", "2", "--lines"]) == 0
    assert main(["evaluate", "--out", str(tmp_path), "--lines", "--show"]) == 1
    assert main(["golden", *shared, "--accuracy-items", "3"]) == 1
    said = capsys.readouterr()
    assert "| task | lines | right % |" in said.out and "--lines decodes nothing" in said.err
    assert "no accuracy table" in said.err


def test_the_second_stage_goes_on_with_the_weights_of_another_architecture(tmp_path, capsys):
    shared = ["--out", str(tmp_path), "--recipe", "harder-second"]
    models = Path(__file__).parents[2] / "models"
    assert main(["tasks", *shared]) == 0
    assert main(["tokenizer", *shared]) == 0
    assert main(["train", *shared, "--tokens", "12e3", "--log-every", "1", "--from", str(models / "tri-f16.gguf")]) == 0
    first = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])
    # Random weights begin at ln 290 = 5.7, and weights whose heads were read in another order above 2.
    assert first["ce"] < 1.5
    assert main(["train", *shared, "--restart", "--from", str(tmp_path / "tokenizer.json")]) == 1
    assert "GGUF" in capsys.readouterr().err


def test_golden_decodes_of_rounded_weights(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(RECIPES, "harder", replace(RECIPE, golden_runs=1))
    shared = ["--out", str(tmp_path), "--recipe", "harder"]
    # A few steps decide nothing, so that decodes run to the end of the canvas; testing one method is enough.
    assert main(["all", *shared, "--tokens", "12e3", "--methods", "dual_threshold0.9"]) == 0
    assert "golden runs right" in capsys.readouterr().out
    with open(tmp_path / "golden" / "decode_dual_threshold0.9.json", encoding="utf-8") as f:
        golden = json.load(f)
    assert golden["gen_length"] == data.CANVAS and len(golden["runs"]) == 1
    assert not (tmp_path / "golden" / "accuracy.md").exists()


def test_lines_are_asked_behind_a_clean_past(tokenizer):
    class Knows(torch.nn.Module):
        """Predicts the answer where everything before the current line is right, and nothing else."""

        def __init__(self, ids, wrong):
            super().__init__()
            self.ids, self.wrong = torch.tensor(ids), wrong

        def forward(self, ids, pad):
            logits = torch.zeros(*ids.shape, len(tokenizer))
            mask = RECIPE.config.mask_token_id
            for i, row in enumerate(ids):
                known = int((row == mask).nonzero()[0])
                assert torch.equal(row[:known], self.ids[:known])
                n = min(len(row), len(self.ids))
                logits[i, torch.arange(n), self.ids[:n]] = 1.0
                logits[i, :, mask] = 2.0        # is never an answer
                logits[i, self.wrong, 7] = 3.0
            return logits
    example = tasks.draw(random.Random(1), 0.0, {"calc": 1})
    prompt, answer = tokenizer.encode(chat(example.prompt)), tokenizer.encode(example.answer)
    item = {"task": "calc", "prompt": example.prompt, "answer": example.answer}
    count = example.answer.count("\n")
    for wrong, right in ((0, count), (len(prompt) + len(answer) - 2, count - 1)):
        found = lines.evaluate_lines(Knows(prompt + answer, wrong), [item], tokenizer)
        assert len(found) == count and sum(o.right == o.tokens for o in found) == right
        assert sum(o.tokens for o in found) == len(answer) - 2      # all but the first line
    assert lines.table(found)[-1].startswith(f"| **all** | {count} |")


def test_a_resumed_run_is_an_unbroken_one(tmp_path, tokenizer):
    def trainer():
        return Trainer(small_model(tokenizer).config, tokenizer, 10_000_000, 0, recipe="harder")
    whole = trainer()
    for _ in range(4):
        whole.train_step()
    broken = trainer()
    for _ in range(2):
        broken.train_step()
    broken.save(tmp_path / "c.pt")
    broken = Trainer.resume(tmp_path / "c.pt", tokenizer)
    for _ in range(2):
        broken.train_step()
    for a, b in zip(whole.model.parameters(), broken.model.parameters()):
        assert torch.equal(a, b)


def test_table_counts():
    made = [Outcome("a", True, 4, 2, ""), Outcome("b", False, 6, 2, "")]
    assert table(made)[-1] == "| **all** | 2 | 50.0 | 5.0 | 2.50 |"

"""Fast tests of trajectory compression; run with `python3 -m pytest train_tiny` from the folder above."""

import json
import random
from pathlib import Path

import pytest
import torch

from train_tiny import gguf, tasks
from train_tiny.cli import main
from train_tiny.compress import prompts, rows, schedule, trajectories
from train_tiny.recipes import RECIPES
from train_tiny.tokenizer import EOS, EOT

MODEL = Path(__file__).resolve().parents[2] / "models" / "tiny-llada-f32.gguf"
BLOCK, LENGTH = 8, 24


@pytest.fixture(scope="module")
def tokenizer():
    return gguf.tokenizer_of(str(MODEL))


def recorded(steps):
    return {"commit_step": steps + [-1] * (LENGTH - len(steps))}


def result(answer, text):
    return {"prompt": "Solve 1+2.", "answer": answer, "text": text, "correct": answer == text}


STEPS = [0, 0, 1, 1, 2, 2, 1, 0, 3, 4, 3, 3, 4, 5, 5, 5]


def test_the_files_tokenizer_is_the_checkpoints(tokenizer):
    assert len(tokenizer) == 768
    assert tokenizer.encode("Solve 17+4.<|eot_id|>")[-1] == tokenizer.special[EOT] == 766
    assert tokenizer.decode(tokenizer.encode("Dan has 7 apples\n")) == "Dan has 7 apples\n"


def test_passes_are_in_the_order_of_the_recording(tokenizer):
    t = trajectories.trajectory(recorded(STEPS), result("3+4=7\n#### 7", "3+4=7\n#### 7"), tokenizer, LENGTH, BLOCK)
    assert t.blocks == [(0, [[0, 1, 7], [2, 3, 6], [4, 5]]), (8, [[8, 10, 11], [9, 12], [13, 14, 15]])]
    ids = tokenizer.encode("3+4=7\n#### 7") + [tokenizer.special[EOT]]
    assert t.canvas == ids + [tokenizer.special[EOS]] * (LENGTH - len(ids))
    assert t.answer == len(ids) + 1


def test_of_wrong_answers_the_blocks_before_the_error_count(tokenizer):
    right = "1 2 3 4 5 6 7 8 9"
    for text, blocks in (("9 2 3", 0), ("1 2 3 4 5 7 6", 1), (right, 2)):
        t = trajectories.trajectory(recorded(STEPS), result(right, text), tokenizer, LENGTH, BLOCK)
        assert len(t.blocks) == blocks


def test_rows_ask_for_the_next_passes_only(tokenizer):
    t = trajectories.trajectory(recorded(STEPS), result("3+4=7\n#### 7", "3+4=7\n#### 7"), tokenizer, LENGTH, BLOCK)
    seen = set()
    for seed in range(1000):
        row = rows.make_row(t, random.Random(seed))
        begin, passes = next(b for b in reversed(t.blocks) if b[0] <= min(row.masked))
        order = {i: n for n, p in enumerate(passes) for i in p}
        targets = [i for i, w in enumerate(row.weights) if w > 0]
        state = min(order[i] for i in targets)
        assert set(row.masked) == {i for i in range(begin, len(row.weights)) if order.get(i, 99) >= state}
        jump = max(order[i] for i in targets) - state + 1
        assert 1 <= jump <= max(rows.JUMPS)
        assert set(targets) == {i for i, n in order.items() if state <= n < state + jump}
        seen.add((begin, state, jump))
    assert len(seen) == 12, "every state of both blocks, with every jump that it has"


def test_a_step_mixes_both_kinds_of_rows(tokenizer):
    recipe = RECIPES["tiny"]
    t = trajectories.trajectory(recorded(STEPS), result("3+4=7\n#### 7", "3+4=7\n#### 7"), tokenizer, LENGTH, BLOCK)
    mixed = rows.compressed(recipe, [t], schedule)
    now = mixed.stage(0, 10_000, 100)
    assert now.muon_rate == schedule.PEAK_RATE and mixed.stage(10_000, 10_000, 100).muon_rate == 0
    assert now.level_weights == recipe.stage(recipe.budget, recipe.budget, 0).level_weights
    batches = mixed.draw_batches(3, 7, now, tokenizer)
    again = mixed.draw_batches(3, 7, now, tokenizer)
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(batches, again, strict=True))
    weights = [w for b in batches for w in b.weights.flatten().tolist()]
    assert rows.TARGET_WEIGHT in weights and set(weights) > {0.0, rows.TARGET_WEIGHT}
    size = sum(b.inputs.numel() for b in batches)
    assert now.batch_tokens <= size < 1.2 * now.batch_tokens


def test_prompts_are_of_training():
    for recipe in ("tiny", "harder"):
        drawn = prompts.draw(recipe, 40, 1)
        assert len({e.prompt for e in drawn}) == 40
    assert all(tasks.split(e.prompt) == "train" for e in prompts.draw("tiny", 40, 1))
    with pytest.raises(ValueError, match="take tiny, harder or harder-second"):
        prompts.draw("tri", 1, 0)


def write_recording(directory, answers, results):
    (directory / "recording.json").write_text(json.dumps(
        {"format": "dllm-recording", "version": 1, "length": LENGTH, "block_length": BLOCK, "answers": answers}))
    (directory / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in results))


def test_the_command_trains_and_continues(tmp_path, capsys):
    assert main(["prompts", "--out", str(tmp_path), "--count", "3"]) == 0
    assert len((tmp_path / "prompts.jsonl").read_text().splitlines()) == 3
    command = ["compress", "--out", str(tmp_path), "--from", str(MODEL), "--tokens", "10000"]
    write_recording(tmp_path, [recorded(STEPS)], [result("7", "7")] * 2)
    assert main(command) == 1
    assert "must come from one run" in capsys.readouterr().err
    write_recording(tmp_path, [recorded(STEPS)], [result("7", "8")])
    assert main(command) == 1
    assert "no answer" in capsys.readouterr().err
    write_recording(tmp_path, [recorded(STEPS)], [result("3+4=7\n#### 7", "3+4=7\n#### 7")])
    assert main([*command, "--minutes", "0.0001"]) == 0
    assert "the same command goes on" in capsys.readouterr().err
    assert main(command) == 0
    stopped = torch.load(tmp_path / "checkpoint.pt")
    assert stopped["step"] >= 2 and stopped["tokens"] >= 10_000
    assert main([*command, "--restart"]) == 0
    whole = torch.load(tmp_path / "checkpoint.pt")
    assert whole["step"] == stopped["step"]
    assert all(torch.equal(whole["average"][n], t) for n, t in stopped["average"].items())
    assert main([*command[:-1], "20000"]) == 1
    assert "belongs to" in capsys.readouterr().err

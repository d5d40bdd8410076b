"""Fast tests of the fourth recipe; run with `python3 -m pytest train_tiny` from the folder above."""

import json
import random
from dataclasses import replace

import pytest
import torch

from train_tiny.drafter import export, model, target, train
from train_tiny.drafter.spread import spread
from train_tiny.export import read_safetensors
from train_tiny.model import Llada
from train_tiny.recipes import RECIPES
from train_tiny.tokenizer import MASK, Tokenizer, train_merges

RECIPE = RECIPES["tri"]
SMALL = replace(RECIPE.config, d_model=32, n_layers=4, n_heads=2, mlp_hidden_size=48)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_merges(RECIPE.tokenizer_texts(0), RECIPE.merges))


def small_target(seed=1):
    made = Llada(SMALL).eval()
    made.reset_parameters(seed)
    torch.manual_seed(seed)
    torch.nn.init.normal_(made.model["transformer"].ff_out.weight, std=0.6)
    for p in made.parameters():
        p.requires_grad_(False)
    return made


def small_drafter(tokenizer, block=6):
    return model.Drafter(model.DrafterConfig(
        width=32, target_layers=(1, 2), target_layer_count=4, vocab_size=SMALL.vocab_size,
        mask_token_id=tokenizer.special[MASK], heads=2, head_dim=16, hidden=48, block=block))


def test_layers_are_spread_and_the_last_is_left_out():
    assert spread(5, 3) == (1, 2, 3)
    assert spread(8, 2) == (1, 6)
    assert spread(4, 9) == (1, 2)


def test_the_target_predicts_each_position_from_those_in_front():
    made = small_target()
    ids = torch.randint(0, SMALL.vocab_size, (2, 9), generator=torch.Generator().manual_seed(0))
    states, predicted = target.read_target(made, ids, (1, 2))
    assert states.shape == (2, 9, 64) and predicted.shape == ids.shape
    other = ids.clone()
    other[:, 5] = (other[:, 5] + 1) % SMALL.vocab_size
    states2, predicted2 = target.read_target(made, other, (1, 2))
    assert torch.equal(states[:, :5], states2[:, :5]) and torch.equal(predicted[:, 1:6], predicted2[:, 1:6])
    assert not torch.equal(states[:, 5:], states2[:, 5:])


def test_a_block_sees_the_text_in_front_and_itself(tokenizer):
    made, drafter = small_target(), small_drafter(tokenizer)
    table = made.model["transformer"].wte.weight
    states = torch.randn(1, 12, 64, generator=torch.Generator().manual_seed(0))
    blocks = torch.full((1, 2, 6), tokenizer.special[MASK])
    blocks[0, :, 0] = torch.tensor([5, 9])
    starts = torch.tensor([[4, 7]])
    both = drafter(blocks, states, starts, table).view(1, 2, 6, -1)
    alone = drafter(blocks[:, 1:], states, starts[:, 1:], table)
    assert torch.allclose(both[:, 1], alone, atol=1e-5), "blocks do not see each other"
    later = states.clone()
    later[:, 7:] += 1
    assert torch.equal(drafter(blocks, later, starts, table), drafter(blocks, states, starts, table))
    front = states.clone()
    front[:, 3] += 1
    assert not torch.allclose(drafter(blocks, front, starts, table)[:, :6], both[:, 0], atol=1e-3)
    last = blocks.clone()
    last[0, 0, 5] = 1
    assert not torch.allclose(drafter(last, states, starts, table)[:, 1], both[:, 0, 1], atol=1e-4), "in both directions"


def test_texts_are_functions_of_seed_and_step(tokenizer):
    first = train.draw_texts(3, 7, tokenizer, 500)
    again = train.draw_texts(3, 7, tokenizer, 500)
    assert [t.ids for g in first for t in g] == [t.ids for g in again for t in g]
    assert [t.ids for g in first for t in g] != [t.ids for g in train.draw_texts(3, 8, tokenizer, 500) for t in g]


def test_training_learns_and_rounds_count(tokenizer):
    made, drafter = small_target(), small_drafter(tokenizer)
    texts = train.draw_texts(0, 0, tokenizer, 800)[0]
    batch = train.collate(texts, drafter.config, tokenizer, random.Random(0), "cpu")
    before = float(train.loss_of(drafter, made, batch)[0])
    train.train(drafter, made, tokenizer, steps=12, batch_tokens=400, log_every=100)
    assert float(train.loss_of(drafter, made, batch)[0]) < before
    assert 1 <= train.rounds(drafter, made, tokenizer, [{"prompt": "1 + 2 ="}]) <= drafter.config.block


def test_the_folder_has_the_published_names(tokenizer, tmp_path):
    drafter = small_drafter(tokenizer)
    export.export_drafter(drafter, str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["dflash_config"] == {"mask_token_id": tokenizer.special[MASK], "target_layer_ids": [1, 2]}
    names = set(read_safetensors(str(tmp_path / "model.safetensors")))
    layer = {f"layers.{i}.{part}.weight" for i in range(2) for part in (
        "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
        "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")}
    assert names == layer | {"fc.weight", "hidden_norm.weight", "norm.weight"}

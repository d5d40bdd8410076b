"""Fast tests of the drafters for text models; run with `python3 -m pytest train_tiny` from the folder above."""

import json
import struct
import time

import numpy as np
import pytest
import torch

from train_tiny.drafter.text import cli, export, train
from train_tiny.drafter.text.generate import ANSWER, BETWEEN, GIVEN, PLAIN, USER, Generator, Machine
from train_tiny.drafter.text.model import Drafter, DrafterConfig
from train_tiny.drafter.text.store import Store
from train_tiny.drafter.text.target import Target
from train_tiny.gguf_file import Reader, read_gguf, write_gguf

WIDTH, VOCAB, END, MASK = 32, 96, 2, 3
LAYERS = (1, 2)


def write_target(path, architecture="llama", seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"attn_norm": (WIDTH,), "ffn_norm": (WIDTH,), "attn_q": (32, WIDTH), "attn_k": (16, WIDTH),
              "attn_v": (16, WIDTH), "attn_output": (WIDTH, 32), "ffn_gate": (48, WIDTH), "ffn_up": (48, WIDTH),
              "ffn_down": (WIDTH, 48)}
    if architecture == "qwen3":
        shapes |= {"attn_q_norm": (8,), "attn_k_norm": (8,)}
    tensors = {"token_embd.weight": rng.standard_normal((VOCAB, WIDTH)), "output_norm.weight": np.ones(WIDTH)}
    for i in range(4):
        for name, shape in shapes.items():
            tensors[f"blk.{i}.{name}.weight"] = rng.uniform(0.5, 1.5, shape) if len(shape) == 1 else \
                rng.standard_normal(shape) / shape[1] ** 0.5
        if architecture == "qwen2":
            for name, size in (("q", 32), ("k", 16), ("v", 16)):
                tensors[f"blk.{i}.attn_{name}.bias"] = rng.standard_normal(size)
    write_gguf(path, {"general.architecture": architecture, f"{architecture}.block_count": 4,
                      f"{architecture}.embedding_length": WIDTH, f"{architecture}.feed_forward_length": 48,
                      f"{architecture}.attention.head_count": 4, f"{architecture}.attention.head_count_kv": 2,
                      f"{architecture}.context_length": 128, f"{architecture}.rope.freq_base": 1000.0,
                      f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5}, tensors)
    return str(path)


@pytest.fixture
def target(tmp_path):
    return Target(write_target(tmp_path / "target.gguf"))


def machine():
    return Machine(END, [10, 11], [12, 13, 14], "cpu")


def written(target, texts=6, length=40, heat=0.0):
    generator = Generator(target, machine(), texts, length, LAYERS)
    given = torch.full((texts, length), -1)
    given[:, :5] = torch.randint(20, VOCAB, (texts, 5), generator=torch.Generator().manual_seed(1))
    generator.run(given, torch.tensor([USER, ANSWER, PLAIN] * (texts // 3)), torch.full((3, texts), heat))
    store = Store(texts, length, len(LAYERS) * WIDTH, "cpu", torch.float32)
    store.add(generator)
    return generator, store


def drafter_of(target, block=5, **more):
    tokens = torch.arange(4, 84)
    config = DrafterConfig(width=WIDTH, target_layers=LAYERS, target_layer_count=4, vocab=VOCAB, draft_vocab=80,
                           mask=MASK, layers=2, heads=4, kv_heads=2, head_dim=8, hidden=40, block=block, rank=4,
                           positions=64, **more)
    made = Drafter(config, tokens, torch.full((len(LAYERS) * WIDTH,), 0.5))
    made.load_head(target.head, target.output_norm)
    return made


def test_rounded_types_are_read(tmp_path):
    """One row of two blocks of each type, by the formats' definitions."""
    nibble = bytes((i % 16) | ((15 - i % 16) << 4) for i in range(16))
    low, high = np.arange(16), 15 - np.arange(16)
    half = struct.pack("<e", 0.5)
    cases = {2: (half + nibble, 0.5 * (np.concatenate((low, high)) - 8)),
             3: (half + struct.pack("<e", -1.0) + nibble, 0.5 * np.concatenate((low, high)) - 1),
             8: (half + bytes(range(32)), 0.5 * np.arange(32)),
             30: (struct.pack("<32H", *[0x3F80 + i for i in range(32)]),
                  np.array([0x3F80 + i for i in range(32)], np.uint32).__lshift__(16).view(np.float32))}
    for kind, (block, expected) in cases.items():
        path = tmp_path / f"{kind}.gguf"
        write_gguf(path, {"general.architecture": "x"}, {"w": np.zeros((1, 64))})
        data = bytearray(path.read_bytes())
        at = data.index(b"w" + struct.pack("<I", 2)) + 1 + 4 + 16
        data[at:at + 4] = struct.pack("<I", kind)
        path.write_bytes(bytes(data[:len(data) - 256]) + block * 2)
        _, tensors = read_gguf(path)
        assert np.array_equal(tensors["w"], np.tile(expected, 2)[None].astype(np.float32)), kind


def test_what_is_written_is_read(tmp_path):
    meta = {"a": "text", "b": 3, "c": 0.5, "d": [1, 2, 3]}
    tensors = {"m": np.arange(6).reshape(2, 3), "v": np.arange(5)}
    write_gguf(tmp_path / "f", meta, tensors)
    found, read = read_gguf(tmp_path / "f")
    assert found == meta and all(np.array_equal(read[name], tensors[name]) for name in tensors)
    assert Reader((tmp_path / "f").read_bytes()).number("<u4") == 0x46554747


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_both_passes_of_the_target_agree(tmp_path, architecture):
    target = Target(write_target(tmp_path / "t.gguf", architecture))
    ids = torch.randint(0, VOCAB, (3, 12), generator=torch.Generator().manual_seed(0))
    last, states = target.forward(ids, LAYERS)
    caches = target.caches(3, 20)
    for i in range(12):
        logits, stepped = target.step(ids[:, i], torch.tensor([i]), caches, 16 if i < 16 else 20, LAYERS)
        assert torch.allclose(logits, target.logits(last[:, i]), atol=1e-4)
        assert torch.allclose(stepped, states[:, i], atol=1e-4)


def test_pairs_of_rotations_follow_the_architecture(tmp_path):
    """A llama file holds rows of Q and K interleaved: the same rows as a qwen file are another model."""
    made = [Target(write_target(tmp_path / name, name)) for name in ("llama", "qwen2")]
    rows = [one.layers[0]["qkv"][:8] for one in made]
    raw = torch.from_numpy(read_gguf(tmp_path / "llama")[1]["blk.0.attn_q.weight"][:8])
    assert torch.equal(rows[0], torch.cat((raw[0::2], raw[1::2])))
    assert torch.equal(rows[1], torch.from_numpy(read_gguf(tmp_path / "qwen2")[1]["blk.0.attn_q.weight"][:8]))


def test_turns_follow_each_other():
    one = machine()
    state, given = torch.tensor([USER, ANSWER, PLAIN, USER]), torch.tensor([-1, -1, -1, 50])
    tokens, kinds = [], []
    for drawn in (END, 60, 61, 62, 63, END, 64):
        token, kind, state = one.next(state, given, torch.full((4,), drawn))
        tokens.append(token.tolist())
        kinds.append(kind.tolist())
    rows = list(zip(*tokens))
    assert rows[0] == (END, 10, 11, 62, 63, END, 12)
    assert rows[1] == (END, 12, 13, 14, 63, END, 10)
    assert rows[2] == (END, 60, 61, 62, 63, END, 64), "plain texts have no turns"
    assert rows[3] == (50,) * 7
    assert list(zip(*kinds))[0] == (USER, BETWEEN, BETWEEN, ANSWER, ANSWER, ANSWER, BETWEEN)
    assert list(zip(*kinds))[3] == (GIVEN,) * 7


def test_texts_are_the_targets_own(target):
    generator, store = written(target)
    last, states = target.forward(store.ids.long(), LAYERS)
    assert torch.allclose(store.states[:, :-1], states[:, :-1], atol=1e-3)
    chosen = target.logits(last).argmax(-1)
    assert torch.equal(store.greedy[:, 1:].long(), chosen[:, :-1])
    drawn = store.drawn(torch.arange(6))
    assert torch.equal(store.ids[drawn], store.greedy[drawn]), "cold texts are greedy"
    assert (store.kind[:, :5] == GIVEN).all() and drawn.sum() > 60
    _, warm = written(target, heat=3.0)
    assert not torch.equal(warm.ids, store.ids)


def test_targets_of_blocks(target):
    _, store = written(target)
    store.kind[:] = ANSWER
    store.kind[0, 12] = BETWEEN
    store.greedy[1] = store.ids[1]
    store.greedy[1, 8] += 1
    texts, starts = torch.tensor([0, 1, 2]), torch.tensor([[9], [6], [37]])
    wanted, counts = store.wanted(texts, starts, 6)
    assert counts[0, 0].tolist()[2:] == [False] * 3, "the answer ends"
    assert counts[1, 0].tolist() == [True, True, False, False, False], "the text goes on otherwise"
    assert wanted[1, 0, 1] == store.greedy[1, 8] and counts[2, 0].tolist()[2:] == [False] * 3
    assert not store.anchors(texts, END)[0, 11] and not store.anchors(texts, int(store.ids[1, 6]))[1, 6]


def test_a_block_sees_the_text_in_front_and_itself(target):
    drafter = drafter_of(target)
    states = torch.randn(1, 20, 2 * WIDTH, generator=torch.Generator().manual_seed(0))
    known, starts = torch.tensor([[5, 9]]), torch.tensor([[4, 7]])
    both = drafter(known, states, starts, target.table)
    alone = drafter(known[:, 1:], states, starts[:, 1:], target.table)
    assert torch.allclose(both[:, 1], alone[:, 0], atol=1e-5), "blocks do not see each other"
    later, front = states.clone(), states.clone()
    later[:, 7:] += 1
    front[:, 3] += 1
    assert torch.equal(drafter(known, later, starts, target.table), both)
    assert not torch.allclose(drafter(known, front, starts, target.table)[0, 0], both[0, 0], atol=1e-3)
    other = drafter(torch.tensor([[6, 9]]), states, starts, target.table)
    assert not torch.allclose(other[0, 0, 3], both[0, 0, 3], atol=1e-4), "masks see the known token"
    moved = drafter(known, states, torch.tensor([[4, 8]]), target.table)
    assert not torch.allclose(moved[0, 1], both[0, 1], atol=1e-4)


def test_drafts_are_the_likeliest_tokens_from_left_to_right(target):
    drafter = drafter_of(target, top=80)
    hidden, known = torch.randn(7, 5, WIDTH), torch.arange(7) + 20
    found, sure = drafter.draft(hidden, known)
    previous = known
    for i in range(4):
        logits = drafter.logits(hidden[:, i + 1], previous)
        assert torch.equal(found[:, i], drafter.tokens[logits.argmax(-1)])
        assert torch.allclose(sure[:, i], logits.softmax(-1).max(-1).values, atol=1e-4)
        previous = found[:, i]
    few, _ = drafter_of(target, top=1).draft(hidden, known)
    plain = torch.nn.functional.linear(hidden[:, 1:], drafter.output).argmax(-1)
    assert torch.equal(few, drafter.tokens[plain])


def test_training_learns_and_rounds_count(target):
    _, store = written(target, texts=12)
    drafter, settings = drafter_of(target), train.Settings(texts=4, anchors=8, warmup=5)
    texts = torch.arange(12)
    starts = train.draw_starts(store.anchors(texts, END), 8)
    before = float(train.loss_of(drafter, store, texts, starts, target, settings)[0])
    assert 1 <= train.rounds(drafter, store, texts, target, END)[0] < 2.5

    train.train(drafter, store, texts, target, settings, time.monotonic() + 300, END, steps=150)
    assert float(train.loss_of(drafter, store, texts, starts, target, settings)[0]) < 0.7 * before
    after, offered, right = train.rounds(drafter, store, texts, target, END)
    assert after > 1.5 and offered == 4 and all(a >= b for a, b in zip(right, right[1:]))
    none, offered, _ = train.rounds(drafter, store, texts, target, END, cut=1.1)
    assert none == 1 and offered == 0, "nothing is so sure"


def test_rows_of_logits_in_parts_make_the_same_loss(target):
    _, store = written(target)
    drafter, texts = drafter_of(target), torch.arange(6)
    starts = train.draw_starts(store.anchors(texts, END), 4)
    whole, parts = (train.loss_of(drafter, store, texts, starts, target, train.Settings(part=size))
                    for size in (1 << 14, 7))
    assert abs(float(whole[0] - parts[0])) < 1e-4 and torch.equal(whole[1], parts[1])


def test_the_file_has_the_engines_names(target, tmp_path):
    drafter = drafter_of(target)
    export.save(drafter, str(tmp_path), {"step": 1})
    again, facts = export.load(str(tmp_path))
    assert facts == {"step": 1} and again.config == drafter.config
    assert torch.equal(again.output, drafter.output.bfloat16().float())
    export.export(str(tmp_path), tmp_path / "d.gguf", "name", "apache-2.0")
    meta, tensors = read_gguf(tmp_path / "d.gguf")
    assert meta["dflash.target_layers"] == [2, 3] and meta["dflash.selector_rank"] == 4
    assert np.allclose(tensors["fc.weight"], again.fc.detach().numpy() * 0.5)
    successor = tensors["selector_successor.weight"]  # by the target's tokens, those that are not drafted included
    assert successor.shape == (VOCAB, 4) and not successor[:4].any() and not successor[84:].any()
    assert np.array_equal(successor[4:84], again.successor.detach().numpy())
    assert np.array_equal(tensors["d2t"], np.arange(4, 84))
    assert {"blk.1.attn_q_norm.weight", "blk.1.ffn_down.weight", "enc.output_norm.weight"} <= set(tensors)
    data = bytearray((tmp_path / "weights.0.bin").read_bytes())
    data[7] ^= 1
    (tmp_path / "weights.0.bin").write_bytes(data)
    with pytest.raises(ValueError, match="manifest"):
        export.load(str(tmp_path))


def test_the_command_runs_every_stage(tmp_path, capsys):
    path = write_target(tmp_path / "t.gguf")
    rng = np.random.default_rng(0)
    ids = rng.integers(20, VOCAB, (40, 6)).astype(np.uint16)
    np.savez(tmp_path / "p.npz", ids=ids.reshape(-1), offsets=np.arange(0, 241, 6),
             goes_on=np.array([USER, ANSWER] * 20, np.uint8), held=np.array([0] * 36 + [1] * 4, np.uint8),
             to_answer=np.array([10, 11]), to_user=np.array([12, 13]), end=np.array(END), specials=np.array(4),
             sets=np.array(["some"]))
    out = tmp_path / "out"
    assert cli.main(["train", "--target", path, "--prompts", str(tmp_path / "p.npz"), "--out", str(out), "--mask", "3",
                     "--seconds", "6", "--texts", "16", "--length", "48", "--capacity", "32", "--states", "2",
                     "--draft-vocab", "40", "--step-texts", "4", "--anchors", "8", "--device", "cpu", "--every", "2",
                     "--fresh-clock"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert any(line.get("same_choice") for line in lines)
    facts = json.loads((out / "manifest.json").read_text())["facts"]
    assert facts["held_out"]["some"]["texts"] == 4 and facts["step"] > 3 and facts["texts"] == 32
    assert not [p for p in out.iterdir() if p.name.endswith(".partial")]
    drafter, _ = export.load(str(out))
    assert MASK not in drafter.tokens and drafter.config.draft_vocab == 40

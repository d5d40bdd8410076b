#!/usr/bin/env python3
"""Golden logits and whole answers of models that read tokens in an order of their own, for tests/ordered_test.cpp.

WeDLM (arXiv 2512.22737): attention is causal in an order in which decided tokens come before masks.
I-DLM (arXiv 2604.11035): masks behind the tokens that a causal pass verifies draft the next ones.
ReFusion (arXiv 2512.13586): attention is causal in the order in which slots of positions were filled.

The samplers are written down here a second time, in numpy and float64, over the layers of derived.py. With the folder
of the public code they are compared with it, layer by layer and token by token:

    python3 tests/golden/models/ordered.py                          # needs numpy; rewrites its *.json and *.npy
    python3 tests/golden/models/ordered.py --upstream FOLDER        # also torch and transformers

FOLDER has WeDLM's repository in `wedlm` (hf_compat, wedlm/engine/sampler.py) and ReFusion's in `refusion` (generate.py,
which runs over layers and a cache of this script, since its own need an older transformers). I-DLM's sampler is part of
a server for GPUs; its layers are Qwen3's, and its greedy answers the autoregressive ones: those of transformers' Qwen3.
Answers whose decisions are closer than float32 resolves are left out.
"""

import argparse
import importlib
import importlib.util
import json
import pathlib
import sys
import types

import numpy as np
from derived import (IDS, LENGTH, MASK, Model, answers, block_mask, config_of, predictions, softmax, sure)

HERE = pathlib.Path(__file__).parent


def decided_first(tokens):
    """visible[i][j]: whether row i sees row j, when all decided tokens come before all masks."""
    rank = np.empty(len(tokens), int)
    rank[np.argsort(np.asarray(tokens) == MASK, kind="stable")] = np.arange(len(tokens))
    return rank[None, :] <= rank[:, None]


def wedlm_logits(model, tokens):
    return model.logits(np.asarray(tokens), decided_first(tokens))


def wedlm_blocks(model, prompt, block, threshold):
    """generate_wedlm() of hf_compat: blocks from the prompt's end, all masks at or above the threshold or the best."""
    x, passes = np.array(prompt + [MASK] * LENGTH), 0
    for begin in range(len(prompt), len(x), block):
        end = min(begin + block, len(x))
        while (x[begin:end] == MASK).any():
            z = wedlm_logits(model, x[:end])
            passes += 1
            places = begin + np.flatnonzero(x[begin:end] == MASK)
            best, confidence = predictions(z[places])
            chosen = confidence >= threshold
            sure(confidence, chosen, threshold)
            if not chosen.any():
                chosen[confidence.argmax()] = True
                sure(confidence, chosen)
            x[places[chosen]] = best[chosen]
    return x[len(prompt):].tolist(), passes


def wedlm_stream(model, prompt, window, entropy, penalty):
    """The engine's: a window that follows the first mask, low entropies near it. It ends with the answer."""
    x, passes = np.array(prompt + [MASK] * LENGTH), 0
    while (x == MASK).any():
        first = int(np.flatnonzero(x == MASK)[0])
        end = min(first + window, len(x))
        z = wedlm_logits(model, x[:end])
        passes += 1
        places = first + np.flatnonzero(x[first:end] == MASK)
        best, _ = predictions(z[places])
        p = softmax(z[places])
        total = -(p * np.log(p)).sum(-1) + penalty * (places - first)
        chosen = total < entropy
        sure(total, chosen, entropy)
        if not chosen.any():
            chosen[total.argmin()] = True
            sure(-total, chosen)
        x[places[chosen]] = best[chosen]
    return x[len(prompt):].tolist(), passes


def module_at(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same(name, ours, theirs):
    worst = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    print(f"{name}: upstream's logits differ by {worst:.1e} of the largest")
    assert worst < 1e-5, name


def compare_wedlm(name, model, decodes, folder):
    """With WeDLMForCausalLM, generate_wedlm() and the engine's Sampler."""
    import torch

    sys.path.insert(0, str(folder / "wedlm"))
    code = importlib.import_module("hf_compat.modeling_wedlm")
    config = importlib.import_module("hf_compat.configuration_wedlm").WeDLMConfig(**model.config)
    config._attn_implementation = "eager"
    for key in ("pad_token_id", "bos_token_id", "eos_token_id"):  # which later transformers no longer add
        setattr(config, key, None)
    sampler = module_at(folder / "wedlm/wedlm/engine/sampler.py", "wedlm_sampler").Sampler()
    # The code is of an earlier transformers, which called a parameter otherwise, and all values follow.
    code.WeDLMPreTrainedModel.init_weights = lambda self: None
    mask = importlib.import_module("transformers.masking_utils").create_causal_mask
    code.create_causal_mask = lambda *, input_embeds, cache_position, **rest: mask(inputs_embeds=input_embeds, **rest)
    net = code.WeDLMForCausalLM(config).double().eval()
    state = {key: torch.tensor(value, dtype=torch.float64) for key, value in model.ck.tensors.items()}
    net.load_state_dict(state, strict=True)

    @torch.no_grad()
    def logits(tokens):
        ids = torch.tensor(tokens)
        order = torch.cat([torch.nonzero(ids != MASK)[:, 0], torch.nonzero(ids == MASK)[:, 0]])
        z = net(input_ids=ids[order][None], position_ids=order[None], attention_mask=torch.ones_like(ids)[None],
                use_cache=False).logits[0]
        back = torch.empty_like(z)
        back[order] = z
        return back

    same(name, wedlm_logits(model, IDS), logits(IDS).numpy())
    compared = 0
    for decode in decodes:
        for run in decode["runs"]:
            prompt, compared = run["prompt_ids"], compared + 1
            if decode["decoder"] == "threshold":
                got = net.generate_wedlm(torch.tensor([prompt]), LENGTH, decode["block"], MASK, decode["threshold"])
                ids = got["sequences"][0, len(prompt):].tolist()
                passes = got["stats"]["total_steps"]
            else:
                x, passes = list(prompt) + [MASK] * LENGTH, 0
                while MASK in x:
                    first = x.index(MASK)
                    end = min(first + decode["block"], len(x))
                    masks = [i for i in range(first, end) if x[i] == MASK]
                    fill, tokens = sampler.process_mask_positions(
                        logits(x[:end])[masks], [i - first for i in masks], 0.0, decode["options"]["near_entropy"],
                        decode["options"]["distance_penalty"])
                    passes += 1
                    for k, token in zip(fill, tokens, strict=True):
                        x[masks[k]] = token
                ids = x[len(prompt):]
            assert (ids, passes) == (run["output_ids"], run["nfe"]), (name, decode["decoder"], prompt)
    print(f"{name}: {compared} of {compared} answers are upstream's, token for token and pass for pass")


def wedlm_models():
    for name, config, kind in (
            ("wedlm", config_of("WeDLMForCausalLM", head_dim=32, qk_norm=True, attention_bias=False),
             {"qk_norm": True}),
            ("wedlm-qwen2", config_of("WeDLMForCausalLM", qk_norm=False, attention_bias=True), {"bias": True})):
        model = Model(config, **kind)
        wedlm_logits(model, IDS)  # the order of the tensors
        decodes = [{"decoder": "threshold", "threshold": t, "window": "block", "block": 8,
                    "runs": answers(lambda prompt, m=model, t=t: wedlm_blocks(m, prompt, 8, t))} for t in (0.02, 0.04)]
        decodes += [{"decoder": "wedlm", "window": "sliding", "block": w,
                     "options": {"near_entropy": e, "distance_penalty": d},
                     "runs": answers(lambda prompt, m=model, w=w, e=e, d=d: wedlm_stream(m, prompt, w, e, d))}
                    for w, e, d in ((8, 5.1, 0.02), (16, 5.2, 0.01))]
        yield name, model, wedlm_logits(model, IDS), decodes, compare_wedlm


def idlm_answer(model, prompt, width):
    """One pass verifies the draft and makes the next one from masks behind it; the words are the autoregressive ones."""
    def best(tokens):
        z = model.logits(np.asarray(tokens), block_mask(len(tokens), 1))
        return z.argmax(-1), z

    total, passes, drafts = len(prompt) + LENGTH, 1, []
    x = list(prompt)
    tokens, z = best(x)
    predictions(z[-1:])
    x.append(int(tokens[-1]))
    while len(x) < total:
        read, rest = len(x) - 1, total - len(x) + 1
        rows = min(rest - 1, 1 + len(drafts))
        masks = min(width - 1, rest - 1 - rows)
        drafts = drafts[:rows - 1]
        tokens, z = best(x + drafts + [MASK] * masks)
        passes += 1
        predictions(z[read:])
        made = [int(t) for t in tokens[read + rows:]]
        for i in range(rows):
            x.append(int(tokens[read + i]))
            if i + 1 < rows and drafts[i] != x[-1]:
                made = []
                break
        drafts = made
    return x[len(prompt):], passes


def qwen3_of(model):
    """transformers' Qwen3 with these weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    keys = {key: value for key, value in model.config.items() if key not in ("architectures", "rope_theta")}
    config = Qwen3Config(**keys, rope_parameters={"rope_type": "default", "rope_theta": model.config["rope_theta"]},
                         attn_implementation="eager")
    net = Qwen3ForCausalLM(config).double().eval()
    net.load_state_dict({key: torch.tensor(value) for key, value in model.ck.tensors.items()}, strict=True)
    return net


def compare_idlm(name, model, decodes, folder):
    import torch

    net = qwen3_of(model)
    with torch.no_grad():
        same(name, model.logits(np.array(IDS), block_mask(len(IDS), 1)), net(torch.tensor([IDS])).logits[0].numpy())
        for decode in decodes:
            for run in decode["runs"]:
                x = list(run["prompt_ids"])
                for _ in range(LENGTH):
                    x.append(int(net(torch.tensor([x])).logits[0, -1].argmax()))
                assert x[len(run["prompt_ids"]):] == run["output_ids"], (name, run)
    print(f"{name}: all answers are transformers' greedy ones")


def idlm_models():
    config = config_of("SDARForCausalLM", head_dim=32, _name_or_path="owner/I-DLM-8B")
    model = Model(config, qk_norm=True)
    logits = model.logits(np.array(IDS), block_mask(len(IDS), 1))
    decodes = [{"mode": "self-speculation", "options": {"draft_min": n, "draft_max": n},
                "runs": answers(lambda prompt, n=n: idlm_answer(model, prompt, n))} for n in (2, 4, 6)]
    yield "idlm", model, logits, decodes, compare_idlm


class Filling:
    """Tokens in the order in which they were finished, each with what it saw then."""

    def __init__(self, model, prompt):
        self.model, self.passes = model, 0
        self.tokens, self.places = list(prompt), list(range(len(prompt)))
        self.seen = [range(i + 1) for i in range(len(prompt))]

    def forward(self, tokens, places, group):
        """Logits of new rows, which see all that is finished and, of each other, what is in front in their group."""
        n, m = len(self.tokens), len(tokens)
        visible = np.zeros((n + m, n + m), bool)
        for i, seen in enumerate(self.seen):
            visible[i, seen] = True
        for i in range(m):
            visible[n + i, :n] = True
            visible[n + i, n:n + i + 1] = [group[j] == group[i] for j in range(i + 1)]
        self.passes += 1
        return self.model.logits(np.array(self.tokens + tokens), visible, np.array(self.places + places))[n:]

    def finish(self, tokens, places, group):
        n = len(self.tokens)
        for i, (token, place) in enumerate(zip(tokens, places, strict=True)):
            self.seen.append([*range(n), *(n + j for j in range(i + 1) if group[j] == group[i])])
            self.tokens.append(token)
            self.places.append(place)


def above(p, threshold):
    sure(np.asarray(p), np.ones(len(p), bool), threshold)
    return [bool(one > threshold) for one in p]


def next_probabilities(z, tokens):
    """Of each token, from the row in front; the first row's own for the first."""
    p = softmax(z)
    return [p[max(i - 1, 0), token] for i, token in enumerate(tokens)]


def refusion_answer(model, prompt, slot, block, slot_threshold, token_threshold):
    """generate_refusion() without a stop token."""
    state = Filling(model, prompt)
    for begin in range(len(prompt), len(prompt) + LENGTH, block):
        open_ = [list(range(p, p + slot)) for p in range(begin, begin + block, slot)]
        while open_:
            places = sum(open_, [])
            best, p = predictions(state.forward([MASK] * len(places), places, [0] * len(places)))
            first = p[::slot]
            chosen = np.flatnonzero(above(first, slot_threshold))
            if len(chosen) == 0:
                chosen = np.array([first.argmax()])
                sure(first, np.arange(len(first)) == chosen[0])
            places = sum((open_[i] for i in chosen), [])
            tokens = [int(t) for i in chosen for t in best[i * slot:(i + 1) * slot]]
            z = state.forward(tokens, places, [0] * len(places))
            right = np.array(above(next_probabilities(z, tokens), token_threshold)).reshape(-1, slot)
            right[:, 0] = True
            whole = int(np.cumprod(right.all(1)).sum())
            if whole:
                state.finish(tokens[:whole * slot], places[:whole * slot], [0] * (whole * slot))
                open_ = [one for i, one in enumerate(open_) if i not in chosen[:whole]]
                continue
            tokens = np.array(tokens).reshape(-1, slot)
            right = np.cumprod(right, 1).sum(1)
            while (right < slot).any():
                rows = [(int(t) if j < r else MASK, k) for k, (one, r) in enumerate(zip(tokens, right, strict=True))
                        for j, t in enumerate(one)]
                groups = [k for _, k in rows]
                z = state.forward([t for t, _ in rows], places, groups).reshape(len(tokens), slot, -1)
                for k in range(len(tokens)):
                    if right[k] < slot:
                        tokens[k, right[k]:] = predictions(z[k, right[k]:])[0]
                z = state.forward([int(t) for t in tokens.flat], places, groups).reshape(len(tokens), slot, -1)
                for k in range(len(tokens)):
                    if right[k] == slot:
                        continue
                    p = next_probabilities(z[k], tokens[k])
                    right[k] += 1
                    ahead = above(p[right[k]:], token_threshold) if right[k] < slot else []
                    right[k] += int(np.cumprod(ahead).sum()) if ahead else 0
            state.finish([int(t) for t in tokens.flat], places, [i // slot for i in range(len(places))])
            open_ = [one for i, one in enumerate(open_) if i not in chosen]
    order = np.argsort(state.places, kind="stable")
    return [int(state.tokens[i]) for i in order][len(prompt):], state.passes


class UpstreamCache:
    """What generate.py asks of its cache."""

    def __init__(self):
        self.layers = []

    def __getitem__(self, i):
        return tuple(self.layers[i])

    def __iter__(self):
        return (tuple(layer) for layer in self.layers)

    def each(self, change):
        self.layers = [[change(part) for part in layer] for layer in self.layers]

    def crop(self, length):
        self.each(lambda part: part[:, :, :length])

    def batch_repeat_interleave(self, count):
        self.each(lambda part: part.repeat_interleave(count, 0))

    def batch_select_indices(self, indices):
        self.each(lambda part: part[indices])

    def batch_select_minibatch(self, count):
        self.each(lambda part: part[:count])

    def full_update(self, more):
        import torch

        self.layers = [[torch.cat(pair, -2) for pair in zip(layer, new, strict=True)]
                       for layer, new in zip(self.layers, more, strict=True)]


class UpstreamNet:
    """Causal in the order of the rows, with their own positions: layers of transformers' Qwen3."""

    device = "cpu"

    def __init__(self, model):
        self.net, self.passes = qwen3_of(model), 0

    def __call__(self, input_ids, position_ids, past_key_values, use_cache):
        import torch
        from transformers.models.qwen3.modeling_qwen3 import apply_rotary_pos_emb, repeat_kv

        cache, body = past_key_values or UpstreamCache(), self.net.model
        self.passes += 1
        with torch.no_grad():
            x = body.embed_tokens(input_ids)
            cos, sin = body.rotary_emb(x, position_ids)
            for i, layer in enumerate(body.layers):
                a, h = layer.input_layernorm(x), layer.self_attn
                shape = (*a.shape[:-1], -1, h.head_dim)
                q = h.q_norm(h.q_proj(a).view(shape)).transpose(1, 2)
                k = h.k_norm(h.k_proj(a).view(shape)).transpose(1, 2)
                v = h.v_proj(a).view(shape).transpose(1, 2)
                q, k = apply_rotary_pos_emb(q, k, cos, sin)
                if i == len(cache.layers):
                    cache.layers.append([k, v])
                else:
                    cache.layers[i] = [torch.cat(pair, 2) for pair in zip(cache.layers[i], (k, v), strict=True)]
                k, v = (repeat_kv(part, h.num_key_value_groups) for part in cache.layers[i])
                rows, keys = q.shape[2], k.shape[2]
                hidden = torch.ones(rows, keys, dtype=torch.bool).triu(keys - rows + 1)
                weights = (q @ k.transpose(2, 3) * h.scaling).masked_fill(hidden, -torch.inf).softmax(-1)
                x = x + h.o_proj((weights @ v).transpose(1, 2).reshape(*a.shape[:-1], -1))
                x = x + layer.mlp(layer.post_attention_layernorm(x))
            logits = self.net.lm_head(body.norm(x))
        return types.SimpleNamespace(logits=logits, past_key_values=cache)


def compare_refusion(name, model, decodes, folder):
    """With generate_refusion() of generate.py."""
    import torch

    for stub, names in (("pandas", []), ("tqdm", ["tqdm"]), ("qwen3", []),
                        ("qwen3.modeling_qwen3_refusion", ["Qwen3ForCausalLM"]),
                        ("qwen3.diffusion_cache_utils", ["DiffusionDynamicCache"])):
        sys.modules[stub] = types.ModuleType(stub)
        for one in names:
            setattr(sys.modules[stub], one, None)
    generate = module_at(folder / "refusion/generate.py", "refusion_generate").generate_refusion
    ids = torch.tensor([IDS])
    same(name, model.logits(np.array(IDS), block_mask(len(IDS), 1)),
         UpstreamNet(model)(ids, torch.arange(len(IDS))[None], None, True).logits[0].numpy())
    compared = 0
    for decode in decodes:
        own = decode["options"]
        for run in decode["runs"]:
            net, prompt = UpstreamNet(model), run["prompt_ids"]
            x, _ = generate(net, types.SimpleNamespace(eos_token_id=-1), torch.tensor([prompt]), gen_length=LENGTH,
                            mask_id=MASK, slot_size=own["slot_length"], serial_num_blocks=LENGTH // decode["block"],
                            slot_threshold=own["slot_threshold"], token_threshold=own["token_threshold"])
            theirs = (x[0, len(prompt):].tolist(), net.passes)
            assert theirs == (run["output_ids"], run["nfe"]), (name, own, prompt, theirs, run)
            compared += 1
    print(f"{name}: {compared} of {compared} answers are upstream's, token for token and pass for pass")


def refusion_models():
    config = config_of("Qwen3ForCausalLM", head_dim=32, _name_or_path="GSAI-ML/ReFusion")
    model = Model(config, qk_norm=True)
    logits = model.logits(np.array(IDS), block_mask(len(IDS), 1))
    decodes = [{"mode": "slots", "block": block,
                "options": {"slot_length": slot, "slot_threshold": st, "token_threshold": tt},
                "runs": answers(lambda prompt, own=(slot, block, st, tt): refusion_answer(model, prompt, *own))}
               for slot, block, st, tt in ((4, 12, 0.02, 0.004), (4, 24, 0.03, 0.002), (8, 24, 0.02, 0.003),
                                           (2, 8, 0.02, 0.004))]
    yield "refusion", model, logits, decodes, compare_refusion


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upstream", type=pathlib.Path, help="folder of the public code")
    upstream = parser.parse_args().upstream
    for name, model, logits, decodes, compare in (*wedlm_models(), *idlm_models(), *refusion_models()):
        print(name, [(len(d["runs"]), [run["nfe"] for run in d["runs"]]) for d in decodes])
        if upstream:
            compare(name, model, decodes, upstream)
        np.save(HERE / f"{name}.npy", logits.astype(np.float32))
        head = json.dumps({"config": model.config, "input_ids": IDS, "length": LENGTH, "decodes": decodes})[1:-1]
        lines = ",\n  ".join(json.dumps(entry) for entry in model.ck.listing)
        (HERE / f"{name}.json").write_text("{" + head + ',\n "tensors": [\n  ' + lines + "]}\n")


if __name__ == "__main__":
    main()

"""What a drafter reads of its target: hidden states, predictions, embedding and head. The target is frozen."""

import torch

from ..gguf import llada_weights, tokenizer_of
from ..gguf_file import read_gguf
from ..model import Llada, ModelConfig


def load_target(path, device="cpu"):
    """(model, tokenizer) of a GGUF file of the recipe `tri`."""
    meta, tensors = read_gguf(path)
    arch = meta["general.architecture"]
    tokenizer = tokenizer_of(path)
    config = ModelConfig(
        d_model=meta[f"{arch}.embedding_length"], n_layers=meta[f"{arch}.block_count"],
        n_heads=meta[f"{arch}.attention.head_count"], mlp_hidden_size=meta[f"{arch}.feed_forward_length"],
        vocab_size=tensors["token_embd.weight"].shape[0], max_sequence_length=meta[f"{arch}.context_length"],
        rope_theta=meta[f"{arch}.rope.freq_base"], rms_norm_eps=meta[f"{arch}.attention.layer_norm_rms_epsilon"],
        mask_token_id=meta["tokenizer.ggml.mask_token_id"])
    model = Llada(config)
    model.load_state_dict(llada_weights(path, config))
    for p in model.parameters():
        p.requires_grad_(False)
    return model.eval().to(device), tokenizer


@torch.no_grad()
def read_target(model, ids, layers):
    """(states [texts, length, layers * width], predicted [texts, length]): the causal prediction of each position, from
    those in front of it; position 0 has itself."""
    transformer = model.model["transformer"]
    length = ids.shape[1]
    cos, sin = model.cos[:length], model.sin[:length]
    seen = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
    bias = torch.zeros(seen.shape, device=ids.device).masked_fill(~seen, -1e9)[None, None]
    x, kept = transformer.wte(ids), []
    for i, block in enumerate(transformer.blocks):
        x = block(x, cos, sin, bias, None)
        if i in layers:
            kept.append(x)
    logits = transformer.ff_out(transformer.ln_f(x))
    logits[..., model.config.mask_token_id] = -torch.inf
    return torch.cat(kept, -1) if kept else None, torch.cat((ids[:, :1], logits.argmax(-1)[:, :-1]), 1)

"""The published form of a drafter: a folder that `--draft-model` reads and `dllm convert` makes a GGUF of."""

import os

from ..export import write_json, write_safetensors


def export_drafter(drafter, directory):
    os.makedirs(directory, exist_ok=True)
    c = drafter.config
    write_safetensors(os.path.join(directory, "model.safetensors"),
                      {name: p.detach().float().cpu().numpy() for name, p in drafter.state_dict().items()})
    write_json(os.path.join(directory, "config.json"), {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "attention_bias": False, "block_size": c.block,
        "dflash_config": {"mask_token_id": c.mask_token_id, "target_layer_ids": list(c.target_layers)},
        "head_dim": c.head_dim, "hidden_act": "silu", "hidden_size": c.width, "intermediate_size": c.hidden,
        "max_position_embeddings": c.positions, "num_attention_heads": c.heads, "num_hidden_layers": c.layers,
        "num_key_value_heads": c.heads, "num_target_layers": c.target_layer_count, "rms_norm_eps": c.eps,
        "rope_theta": c.rope_theta, "tie_word_embeddings": False, "torch_dtype": "float32",
        "vocab_size": c.vocab_size})

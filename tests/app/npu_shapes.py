"""Files with shapes of small models, for `dllm npu ... --shape`."""

DENSE = """name = "small"
architecture = "llada"
vocab = 300
width = 128
layers = 2
heads = 4
kv_heads = 2
head_dim = 32
ffn_width = 192
"""
EXPERTS = DENSE.replace('"llada"', '"llada-moe"') + """[experts]
count = 16
used = 2
width = 64
"""

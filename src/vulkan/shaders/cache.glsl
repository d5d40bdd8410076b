// The KV cache in memory: tiles of 64 positions, in each the layers, in each K and V, [kv_head][64][head_dim]. A place
// depends on nothing but the model, so that commands recorded once serve caches of every capacity. Pairs of numbers are
// words: two of F32, one of F16 or BF16. Rows of Q8_0 and Q4_0 are the codes of all blocks of 32, then the blocks'
// scales as halves. Included after types.glsl.

layout(constant_id = 2) const uint kCacheType = 0;
layout(constant_id = 3) const bool kRotatesKeys = false;  // blocks of keys and of queries (KernelSet::encode_key)
const uint kCacheF32 = 0, kCacheF16 = 1, kCacheBF16 = 2, kCacheQ8 = 3, kCacheQ4 = 4;
const bool kHasCodes = kCacheType >= kCacheQ8;
const uint kTilePositions = 64;

uint words_of_codes(uint dims) { return kCacheType == kCacheQ8 ? dims / 4 : dims / 8; }

uint words_of_row(uint dims) {
  if (kHasCodes) return words_of_codes(dims) + (dims / 32 + 1) / 2;
  return kCacheType == kCacheF32 ? dims : dims / 2;
}

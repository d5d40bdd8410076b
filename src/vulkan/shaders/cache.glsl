// The KV cache in memory: tiles of 64 positions, in each the layers, in each K and V, [kv_head][64][head_dim]. A place
// depends on nothing but the model, so that commands recorded once serve caches of every capacity. Pairs of numbers are
// words: two of F32, one of F16 or BF16. Included after types.glsl.

layout(constant_id = 2) const uint kCacheType = 0;
const uint kCacheF32 = 0, kCacheF16 = 1, kCacheBF16 = 2;
const uint kTilePositions = 64;

uint words_of_pairs(uint pairs) { return kCacheType == kCacheF32 ? 2 * pairs : pairs; }

// Which rows of x a workgroup multiplies with which matrix. Products of op::Experts have `used` pairs of a row and an
// expert for each row, and a matrix of a stack for each pair. Included by the products of matrices, after the push
// constants.

layout(constant_id = 7) const bool kExperts = false;
// Rows of a workgroup.
#ifdef DLLM_FIXED_ROWS
const uint kRows = DLLM_FIXED_ROWS;
#else
layout(constant_id = 8) const uint kRows = 8;
#endif

struct Tile {
  uint base;   // of the matrix, in words
  uint count;  // rows; 0: nothing to do
  uint first;  // row of the result
};

Tile tile_of_group() {
  const uint group = gl_WorkGroupID.y;
  if (kExperts) {
    const uint expert = uint(p.route.at[group / p.used * 2 * p.used + group % p.used]);
    return Tile(expert * p.expert_words, 1, group);
  }
  const uint rows = uint(p.count.at[0]), first = group * kRows;
  return Tile(0, first < rows ? min(rows - first, kRows) : 0, first);
}

// The row of the result for row r of a tile; those beyond its count repeat the last one.
uint target_of(Tile tile, uint r) { return tile.first + min(r, tile.count - 1); }

// The row of x for a row of the result.
uint source_of(uint target) { return kExperts && p.shared_rows != 0 ? target / p.used : target; }

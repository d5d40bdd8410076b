// Which rows of x a workgroup multiplies with which matrix. Products of op::Experts have `used` pairs of a row and an
// expert for each row, and a matrix of a stack for each pair. Included by the products of matrices, after the push
// constants.

layout(constant_id = 7) const uint kExperts = 0;
const uint kNoExperts = 0;  // every row, with one matrix
const uint kEachPair = 1;   // a workgroup for every pair
const uint kGrouped = 2;    // the pairs of an expert together, as group_pairs.comp lists them in p.route
// Rows of a workgroup.
#ifdef DLLM_FIXED_ROWS
const uint kRows = DLLM_FIXED_ROWS;
#else
layout(constant_id = 8) const uint kRows = 8;
#endif

struct Tile {
  uint base;   // of the matrix, in words
  uint count;  // rows; 0: nothing to do
  uint first;  // row, or place in the list of pairs
};

Tile tile_of_group() {
  const uint group = gl_WorkGroupID.y;
  if (kExperts == kGrouped) {
    Ints lists = Ints(uvec2(p.route));
    if (group >= lists.at[0]) return Tile(0, 0, 0);
    const uint at = 4 + 4 * group;
    return Tile(uint(lists.at[at]) * p.expert_words, uint(lists.at[at + 1]), uint(lists.at[1] + lists.at[at + 2]));
  }
  if (kExperts == kEachPair) {
    const uint expert = uint(p.route.at[group / p.used * 2 * p.used + group % p.used]);
    return Tile(expert * p.expert_words, 1, group);
  }
  const uint rows = uint(p.count.at[0]), first = group * kRows;
  return Tile(0, first < rows ? min(rows - first, kRows) : 0, first);
}

// The row of the result for row r of a tile; those beyond its count repeat the last one.
uint target_of(Tile tile, uint r) {
  const uint at = tile.first + min(r, tile.count - 1);
  return kExperts == kGrouped ? uint(Ints(uvec2(p.route)).at[at]) : at;
}

uint source_of(uint target) { return kExperts != kNoExperts && p.shared_rows != 0 ? target / p.used : target; }

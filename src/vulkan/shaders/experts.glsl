// Products of op::Experts: each row has `used` pairs of a row and an expert, and each pair its own matrix of a stack.
// Included by the products of matrices, after the push constants.

layout(constant_id = 7) const bool kExperts = false;
const uint kRows = kExperts ? 1 : 8;  // that an invocation computes

// What a workgroup multiplies: rows from `first` on, those of x from `source` on, with the matrix at `base`.
struct Part {
  uint first;
  uint last;  // row of x
  uint source;
  uint base;
};

Part part_of_group() {
  const uint group = gl_WorkGroupID.y;
  if (!kExperts) return Part(group * kRows, uint(p.count.at[0]) - 1, group * kRows, 0);
  const uint row = group / p.used, expert = uint(p.route.at[row * 2 * p.used + group % p.used]);
  const uint source = p.shared_rows != 0 ? row : group;
  return Part(group, source, source, expert * p.expert_words);
}

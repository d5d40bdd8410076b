// What the host says about passes in a row, and what the device makes of it (src/vulkan/unroll_arguments.h). Included
// after types.glsl.

layout(buffer_reference, std430, buffer_reference_align = 8) buffer UnrollState {
  uint pass;     // that runs now
  uint passes;   // most in a row
  uint halted;   // 1: no pass follows
  uint ran;      // passes whose results hold
  uint sequences;
  uint rows;     // that are scored
  uint launches;
  uint unused;
};

struct UnrollSequence {
  int first;  // of its scored rows
  int count;
  uint by_counts;  // 0: by the threshold
  int first_stop;
  double threshold;
  double tie;
  uint rules;    // the first tokens that are asked for have rules: they are never chosen
  uint counted;  // a bit for each: it is part of the softmax
  uint stops;
  uint unused;
  uint stop[8];
  uint counts[16];
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer UnrollSequences { UnrollSequence at[]; };

struct UnrollRow {
  int sequence;  // -1: nobody decides by it
  int target;    // row of the pass that reads what it predicts; -1: there is none
  int position;  // which it predicts
  uint open;     // 1: a mask
  int chosen;    // token that this pass commits there; -1: none
  uint unused[3];
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer UnrollRows { UnrollRow at[]; };

struct RowCandidate {
  uint token;
  uint fit;     // kWaits, kEligible, kUnsure
  double rest;  // the other tokens' probabilities by that of `token`: its confidence is 1 / (1 + rest)
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer RowCandidates { RowCandidate at[]; };
const uint kWaits = 0, kEligible = 1, kUnsure = 2;

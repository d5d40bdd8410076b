#pragma once

#include "decode/decoder/shared_rows.h"

/// Options of the decoders that edit committed tokens: draft-edit, levenshtein.
namespace dllm {

struct EditOptions : ThresholdOptions {
  double edit_threshold = 0.5;
  std::int32_t max_post_steps = 16;
};
inline OptionRows<EditOptions> edit_rows() {
  using O = EditOptions;
  return join_rows<O>(threshold_rows(), OptionRows<O>{
                                            option("edit_threshold", &O::edit_threshold, 0, 2, "",
                                                   "replace a token if another reaches this confidence"),
                                            option("max_post_steps", &O::max_post_steps, 0, 1e6, "passes",
                                                   "passes that may edit a block after its last mask"),
                                        });
}

}  // namespace dllm

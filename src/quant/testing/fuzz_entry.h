#pragma once

#include <span>
#include <string_view>

#include "quant/importance.h"

namespace dllm {

/// The older format of importance matrices; that of GGUF has its own target.
inline void fuzz_importance(std::string_view text) {
  if (const auto importance = Importance::parse_old(std::as_bytes(std::span(text)), "fuzz"))
    (void)importance->find("blk.0.attn_q.weight");
}

}  // namespace dllm

#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/to_size.h"
#include "base/try.h"
#include "dllm/error.h"
#include "ranks/communicator.h"

namespace dllm {

/// A byte of every rank, by rank. All call it together.
inline Expected<std::vector<std::byte>> gather_flags(Communicator& ranks, bool own) {
  const auto mine = static_cast<std::byte>(own);
  std::vector<std::byte> all(to_size(ranks.size()));
  const std::vector<std::size_t> sizes(all.size(), 1);
  DLLM_CHECK_OK(ranks.all_gather(std::span(&mine, 1), sizes, all));
  return all;
}

inline bool any(const std::vector<std::byte>& flags) {
  return std::ranges::any_of(flags, [](std::byte flag) { return flag != std::byte{0}; });
}

}  // namespace dllm

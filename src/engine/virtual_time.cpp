#include "engine/virtual_time.h"

#include <algorithm>

namespace dllm {

std::size_t first_block_passes(const Generation& answer) {
  const auto block =
      std::min(answer.commit_step.size(), static_cast<std::size_t>(std::max(1, answer.options.block_length)));
  std::int32_t last = -1;
  for (std::size_t i = 0; i < block; ++i) last = std::max(last, answer.commit_step[i]);
  return static_cast<std::size_t>(last + 1);
}

}  // namespace dllm

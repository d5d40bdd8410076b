#include "engine/virtual_time.h"

#include <algorithm>

#include "base/to_size.h"

namespace dllm {

std::size_t first_block_passes(const Generation& answer) {
  const auto block = std::min(answer.commit_step.size(), to_size(std::max(1, answer.options.block_length)));
  std::int32_t last = -1;
  for (std::size_t i = 0; i < block; ++i) last = std::max(last, answer.commit_step[i]);
  return to_size(last + 1);
}

}  // namespace dllm

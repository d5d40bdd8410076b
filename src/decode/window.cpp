#include "decode/window.h"

#include <algorithm>

namespace dllm {

Position block_origin(const WindowConfig& config, const Canvas& canvas) {
  return config.origin == BlockOrigin::kAbsolute ? 0 : canvas.prompt_end();
}

PositionRange block_at(const WindowConfig& config, const Canvas& canvas, Position position) {
  const Position origin = block_origin(config, canvas);
  const Position begin = origin + (position - origin) / config.block_length * config.block_length;
  return {begin, std::min(begin + config.block_length, canvas.size())};
}

Position widest_window(const WindowConfig& config) {
  return std::max(config.block_length, config.max_rows > 0 ? config.max_rows : 4 * config.block_length);
}

}  // namespace dllm

#pragma once

#include <memory>
#include <optional>

#include "backend/latency_table.h"
#include "decode/canvas.h"
#include "model/model_desc.h"

namespace dllm {

/// Which positions are being decoded now (dInfer: iteration manager).
class Window {
 public:
  virtual ~Window() = default;
  /// The window of the next step; nullopt when nothing is left to decode. Positions in front of the prompt's end may
  /// be inside (absolute block grids); they are never masked.
  virtual std::optional<PositionRange> next(const Canvas& canvas) = 0;
};

struct WindowConfig {
  BlockOrigin origin = BlockOrigin::kPromptEnd;
  Position block_length = 32;
  const LatencyTable* latency = nullptr;  ///< what steps cost on this machine, borrowed; nullptr: unknown
};

}  // namespace dllm

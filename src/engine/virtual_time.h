#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>

#include "backend/latency_table.h"
#include "dllm/error.h"
#include "dllm/generate.h"

namespace dllm {

/// The clock of a backend whose passes take another time than they take here: on a simulated device, or a modelled one.
/// It counts one answer at a time.
class VirtualClock {
 public:
  virtual ~VirtualClock() = default;

  /// Before an answer.
  virtual void reset() = 0;
  /// What it has counted for `answer`, the one since the last reset().
  virtual VirtualTime read(const Generation& answer) const = 0;
  /// What a step of so many rows costs on the device. Errors: those of the device's model.
  virtual Expected<LatencyTable> latency_table() = 0;
  /// What the times depend on besides the model, for records of benchmarks: an object, whose "device" is a name.
  virtual nlohmann::ordered_json settings() const = 0;
};

/// The passes until the first block of the answer was decided.
std::size_t first_block_passes(const Generation& answer);

}  // namespace dllm

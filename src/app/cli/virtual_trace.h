#pragma once

#include <nlohmann/json_fwd.hpp>

#include "dllm/generate.h"

namespace dllm::app {

/// A Chrome JSON trace of an answer in virtual time, for ui.perfetto.dev: a track of passes, and one per part. Within a
/// pass the parts are drawn one after the other, though a device interleaves them operator by operator; the last one
/// ends with the pass. The trace ends at the answer's total. Times in microseconds, as the format has them.
nlohmann::ordered_json virtual_trace(const VirtualTime& time);

}  // namespace dllm::app

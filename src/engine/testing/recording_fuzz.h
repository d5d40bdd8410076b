#pragma once

#include <string_view>

#include "engine/recording.h"

namespace dllm {

/// The body of fuzz/fuzz_recording.cpp, which a test replays over its corpus: any text is a recording that can be
/// replayed and that survives writing and reading, or gives a meaningful error.
inline void fuzz_recording(std::string_view text) {
  const auto recording = parse_recording(text, "input");
  if (!recording) {
    if (recording.error().what.empty()) __builtin_trap();
    return;
  }
  for (const std::size_t answer : recording->spread(4)) {
    if (!recording->schedule(answer, recording->length)) __builtin_trap();
    const auto cut = recording->schedule(answer, recording->block_length);
    if (!cut && cut.error().what.empty()) __builtin_trap();
  }
  const std::string written = recording_text(*recording);
  const auto again = parse_recording(written, "written");
  if (!again || recording_text(*again) != written) __builtin_trap();
}

}  // namespace dllm

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_reader.h"
#include "npu_core/timing/memo.h"

namespace dllm::npu {

/// The body of fuzz/fuzz_timing_cache.cpp, which a test replays over its corpus: any text is either a stored report or
/// rejected with a reason. A fuzzer cannot guess a checksum, so its texts are also read with the right one.
inline void fuzz_timing_cache(std::string_view text) {
  const TimingOptions options;
  const std::string key = "key";
  const auto read = [&](std::string_view file) {
    const auto report = parse_kept_report(file, key, options);
    if (!report) {
      if (report.error().what.empty()) __builtin_trap();
      return;
    }
    // What `dllm npu step` prints from it.
    for (const auto& [name, engine] : report->at("engines").items()) (void)engine.at("busy_share").get<double>();
    (void)report->at("simulation").at("instructions_repeated").get<std::uint64_t>();
    (void)report->at("instructions").get<std::uint64_t>();
  };
  read(text);
  const auto file = read_json<nlohmann::ordered_json>(text, {});
  if (file && file->is_object() && file->contains("report")) read(kept_report_text(key, file->at("report")));
}

}  // namespace dllm::npu

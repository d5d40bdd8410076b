#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/bench/bench.h"
#include "app/bench/host.h"
#include "app/bench/work.h"
#include "base/rng.h"
#include "base/try.h"
#include "engine/backend/cpu.h"
#include "engine/load.h"
#include "quant/recipe.h"

namespace dllm::app {
namespace {

/// Name of the mix whose number is in the file; empty if there is none.
std::string recipe_name(const Metadata& metadata) {
  const auto type = metadata.integer("general.file_type");
  return std::string(type && *type ? file_type_name(static_cast<std::uint32_t>(**type)) : std::string_view());
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

bool on_processor(const BackendEntry& backend) { return &backend == &backends().front(); }

Expected<BenchModel> BenchModel::open(const std::string& path, const LoadOptions& options) {
  reset_peak_resident();
  const auto start = std::chrono::steady_clock::now();
  BenchModel result;
  result.path = path;
  result.profile = std::make_unique<cpu::Profile>();
  DLLM_TRY(auto source, open_or_embedded(path));
  const Log log = options.warnings ? Log() : Log([](LogLevel, const std::string&) {});
  DLLM_TRY(result.model, Model::load(std::move(source), log));
  DLLM_TRY(const BackendEntry* const backend, requested_backend(options));
  if (on_processor(*backend)) {
    DLLM_TRY(result.running, run_on_cpu(*result.model, path, options, log, result.profile.get()));
  } else {
    DLLM_TRY(result.running, backend->make(*result.model, path, options, log));
  }
  result.open_seconds = seconds_since(start);
  return result;
}

nlohmann::ordered_json BenchModel::describe() const {
  std::int64_t parameters = 0, bytes = 0;
  for (const SourceTensor& tensor : model->tensors()) {
    parameters += element_count(tensor.shape);
    bytes += static_cast<std::int64_t>(byte_size(tensor));
  }
  const Graph graph = model->build({1, 1});
  std::string type = recipe_name(model->metadata());
  if (type.empty()) type = codec(main_type(graph, model->weights())).name;
  return {{"path", path.empty() ? "embedded" : path},
          {"name", path.empty() ? "embedded" : std::filesystem::path(path).stem().string()},
          {"architecture", model->desc().architecture},
          {"parameters", parameters},
          {"bytes", bytes},
          {"type", type},
          {"threads", running.threads},
          {"isa", running.isa},
          {"arithmetic", running.arithmetic},
          {"cache_type", running.latency ? running.latency->kv_type : ""}};
}

Expected<std::vector<double>> repeat(const BenchOptions& options, const BenchWatch& watch,
                                     const std::function<Expected<void>()>& body,
                                     const std::function<void()>& after_warmup) {
  constexpr std::size_t kMostSamples = 1000;
  const auto cancelled = [] { return Error{ErrorCode::kCancelled, "the benchmark was interrupted", "", ""}; };
  for (std::int32_t i = 0; i < options.warmup; ++i) {
    if (watch.stop.stop_requested()) return cancelled();
    DLLM_CHECK_OK(body());
  }
  if (after_warmup) after_warmup();
  std::vector<double> samples;
  double total = 0;
  while (samples.size() < static_cast<std::size_t>(options.repetitions) ||
         (total < options.min_seconds && samples.size() < kMostSamples)) {
    if (watch.stop.stop_requested()) return cancelled();
    const auto start = std::chrono::steady_clock::now();
    DLLM_CHECK_OK(body());
    samples.push_back(seconds_since(start));
    total += samples.back();
  }
  return samples;
}

TokenId bench_token(const ModelDesc& desc, std::uint64_t seed, Position position) {
  for (std::uint32_t attempt = 0;; ++attempt) {
    const auto words = philox4x32({static_cast<std::uint32_t>(position), attempt, 0, 0},
                                  {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const auto token = static_cast<TokenId>(words[0] * static_cast<std::uint64_t>(desc.vocab) >> 32);
    const bool special = token == desc.mask || token == desc.bos || token == desc.pad ||
                         std::find(desc.stop_ids.begin(), desc.stop_ids.end(), token) != desc.stop_ids.end();
    if (!special || attempt == 100) return token;
  }
}

Expected<void> ComparedPeaks::again() {
  DLLM_TRY(const cpu::Peaks now, measure());
  raise(best, now);
  return {};
}

Expected<MaybePeaks> peaks_to_compare(const BackendEntry& backend, const LoadOptions& load, bool asked) {
  auto meter = backend.peaks(load);
  if (!meter && meter.error().code == ErrorCode::kUnsupported && !asked) return MaybePeaks();
  if (!meter) return std::move(meter).error();
  ComparedPeaks peaks{*std::move(meter)};
  DLLM_TRY(peaks.best, peaks.measure());
  return MaybePeaks(std::move(peaks));
}

bool runs_where_peaks_are(const BackendEntry& backend, const RunningBackend& running) {
  return on_processor(backend) || (running.device && running.device().split.empty());
}

const cpu::Peaks::Rate& bound_of(const cpu::Peaks& peaks, const ProductKind& products) {
  const TensorType type = products.weights;
  const bool block = codec(type).is_block() && products.activations != "f32";
  const cpu::Peaks::Rate& tiles = block ? peaks.int8_tiles : peaks.bf16_tiles;
  if (products.arithmetic == "super" && products.isa == "amx" && tiles.per_second > 0) return tiles;
  if (block) return peaks.int8;
  if (type != TensorType::kF16 && type != TensorType::kBF16) return peaks.f32;
  // A device has no rate of bf16, as its `exact` products of these are multiply-adds of F32.
  const cpu::Peaks::Rate& halves = products.arithmetic == "f16" ? peaks.f16 : peaks.bf16;
  return halves.per_second > 0 ? halves : peaks.f32;
}

nlohmann::ordered_json peak_record(const cpu::Peaks& peaks) {
  const auto rate = [](const cpu::Peaks::Rate& r) -> nlohmann::ordered_json {
    if (r.per_second <= 0) return nullptr;
    return {{"gops", r.per_second / 1e9}, {"instruction", r.instruction}};
  };
  nlohmann::ordered_json json = {{"test", "peak"}};
  if (peaks.threads > 0) json["threads"] = peaks.threads;
  json.update({{"int8", rate(peaks.int8)},
               {"bf16", rate(peaks.bf16)},
               {"f16", rate(peaks.f16)},
               {"f32", rate(peaks.f32)},
               {"int8_tiles", rate(peaks.int8_tiles)},
               {"bf16_tiles", rate(peaks.bf16_tiles)},
               {"read_gbps", peaks.read_bytes_per_second / 1e9}});
  return json;
}

}  // namespace dllm::app

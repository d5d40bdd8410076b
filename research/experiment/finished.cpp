#include "experiment/finished.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/hash.h"
#include "base/input_file.h"
#include "base/try.h"
#include "dllm/version.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
namespace {

namespace fs = std::filesystem;

Expected<std::uint64_t> file_hash(const std::string& path, std::uint64_t hash) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(std::size_t{1} << 20);
  while (file) {
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const auto count = static_cast<std::size_t>(file.gcount());
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(count), bytes.end(), 0);
    for (std::size_t i = 0; i < count; i += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, &bytes[i], sizeof(word));
      hash = mix64(hash, word);
    }
    hash = mix64(hash, count);
  }
  if (!file.eof()) return Error{ErrorCode::kIo, "cannot be read", path, ""};
  return hash;
}

/// A path and what is there.
Expected<std::string> input_line(const char* name, const std::string& path) {
  DLLM_TRY(const std::string print, fingerprint(path));
  return fmt::format("{} {} {}\n", name, path, print);
}

}  // namespace

Expected<std::string> fingerprint(const std::string& path) {
  std::error_code failure;
  std::vector<std::string> files;
  if (fs::is_directory(path, failure)) {
    for (fs::directory_iterator at(path, failure), end; !failure && at != end; at.increment(failure))
      if (at->is_regular_file(failure)) files.push_back(at->path().string());
    if (failure) return Error{ErrorCode::kIo, failure.message(), path, ""};
    std::ranges::sort(files);
  } else if (fs::is_regular_file(path, failure)) {
    files.push_back(path);
  } else {
    return std::string();
  }
  std::uint64_t hash = Fnv1a::kBasis;
  for (const std::string& file : files) {
    if (files.size() > 1) hash = Fnv1a(hash).add(fs::path(file).filename().string()).value();
    DLLM_TRY(hash, file_hash(file, hash));
  }
  return fmt::format("{:016x}", hash);
}

Expected<std::string> figure_key(const Experiment& experiment, const LabInputs& inputs) {
  std::string text = fmt::format("dllm {}\n{}\n", DLLM_VERSION, experiment.name);
  const auto add = [&](const char* name, const std::string& path) -> Expected<void> {
    DLLM_TRY(const std::string line, input_line(name, path));
    text += line;
    return {};
  };
  if (experiment.reads & kReadsShape) DLLM_CHECK_OK(add("shape", inputs.shape));
  if (experiment.reads & kReadsAnswers) {
    DLLM_CHECK_OK(add("model", inputs.model));
    DLLM_CHECK_OK(add("items", inputs.items));
  }
  if (experiment.reads & kReadsUnseen) {
    DLLM_CHECK_OK(add("model", inputs.model));
    DLLM_CHECK_OK(add("unseen", inputs.unseen));
    DLLM_CHECK_OK(add("embedded", inputs.unseen_embedded));
    text += fmt::format("limit {}\n", inputs.limit);
  }
  if (experiment.reads & kReadsCalibration) {
    DLLM_CHECK_OK(add("calibration", inputs.calibration));
    DLLM_CHECK_OK(add("calibration of the embedded model", inputs.calibration_embedded));
  }
  std::vector<std::string> devices;
  if (experiment.reads & kReadsPhones) devices.insert(devices.end(), std::begin(kPhones), std::end(kPhones));
  if (experiment.reads & kReadsNpus) devices.insert(devices.end(), std::begin(kNpus), std::end(kNpus));
  for (const std::string& name : devices) {
    DLLM_TRY(const npu::Device device, npu::load_device(name));
    text += npu::device_json(device).dump() + "\n";
  }
  return fmt::format("{:016x}", Fnv1a().add(text).value());
}

Expected<std::optional<Figure>> finished_figure(const std::string& folder, const Experiment& experiment,
                                                const std::string& key) {
  const std::string base = fmt::format("{}/{}", folder, experiment.name);
  std::error_code failure;
  for (const char* ending : {".json", ".csv", ".svg", ".md"})
    if (!fs::is_regular_file(base + ending, failure)) return std::optional<Figure>();
  DLLM_TRY(const std::string text, read_input(base + ".json"));
  auto figure = figure_from_json(nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (!figure || figure->key != key || figure->name != experiment.name) return std::optional<Figure>();
  return figure;
}

}  // namespace dllm::app

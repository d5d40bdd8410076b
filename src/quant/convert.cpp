#include "quant/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "base/try.h"
#include "format/gguf.h"
#include "model/describe.h"
#include "numerics/mx_tensor.h"
#include "numerics/packed.h"
#include "quant/tensor_encoder.h"

namespace dllm {
namespace {

/// The files that the model consists of, including those of a directory that are read rather than mapped.
Expected<std::vector<FileIdentity>> sources_of(const ModelSource& source) {
  std::vector<FileIdentity> result;
  for (const auto& file : source.files) result.push_back(file->identity());
  std::error_code ignored;
  if (!std::filesystem::is_directory(source.name, ignored)) return result;
  std::filesystem::directory_iterator it(source.name, ignored), end;
  for (; !ignored && it != end; it.increment(ignored)) {
    const auto extension = it->path().extension();
    if (extension != ".json" && extension != ".txt" && extension != ".jinja") continue;
    if (const auto identity = file_identity(it->path().string())) result.push_back(*identity);
  }
  return result;
}

Expected<void> check_encoders(const ModelSource& source, const std::vector<TypeChoice>& choices) {
  for (const SourceTensor& tensor : source.tensors)
    if (tile_element(tensor.type))
      return Error{ErrorCode::kUnsupported, "the matrix is stored in a device's tiles", tensor.name,
                   "start from the file or directory from which it was converted"};
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (choices[i].type != source.tensors[i].type && codec(choices[i].type).quantize == nullptr)
      return not_written(codec(choices[i].type).name, source.tensors[i].name);
  return {};
}

/// The blocks that training gave the attention are those of decoding; no build loads a file in which they differ.
Expected<void> check_block_length(const ModelSource& source, const WriteOptions& options) {
  DLLM_TRY(const auto seen, source.metadata.integer(kAttentionBlockKey));
  if (options.block_length == 0 || seen.value_or(0) <= 1 || *seen == options.block_length) return {};
  return Error{ErrorCode::kUsage,
               fmt::format("the model's attention has blocks of {}, not of {}", *seen, options.block_length),
               "--block-length", fmt::format("leave it out: runs decode blocks of {}", *seen)};
}

/// What the importance matrix says of a tensor; empty: nothing. Errors: kMismatch, other sizes than the tensor's, but
/// not of the table, for which llama.cpp's files have none or something else.
Expected<std::span<const float>> importance_of(const SourceTensor& tensor, const WriteOptions& options) {
  if (options.importance == nullptr) return std::span<const float>();
  const std::span<const float> found = options.importance->find(tensor.name);
  const std::int64_t matrices = tensor.shape.size() > 2 ? tensor.shape[2] : 1;
  const auto wanted = static_cast<std::size_t>(tensor.shape.front() * matrices);
  if (found.empty() || found.size() == wanted) return found;
  if (tensor.name == "token_embd.weight") return std::span<const float>();
  return Error{ErrorCode::kMismatch,
               fmt::format("the importance matrix has {} columns for it, the tensor {}", found.size(), wanted),
               tensor.name, "it was made from another model"};
}

/// Checks the sizes, and warns of the matrices that are quantized without importance.
Expected<std::vector<std::string>> importance_warnings(const ModelSource& source, const WriteOptions& options,
                                                       const std::vector<TypeChoice>& choices) {
  std::vector<std::string> without;
  if (options.importance == nullptr) return without;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const SourceTensor& tensor = source.tensors[i];
    DLLM_TRY(const std::span<const float> found, importance_of(tensor, options));
    const bool weighted = choices[i].type != tensor.type && codec(choices[i].type).quantize_weighted != nullptr;
    if (weighted && found.empty() && tensor.name != "token_embd.weight") without.push_back(tensor.name);
  }
  if (without.empty()) return without;
  return std::vector<std::string>{fmt::format("the importance matrix does not have {} of the matrices: {}",
                                              without.size(), fmt::join(without, ", "))};
}

void name_importance(const Importance& importance, Metadata& target) {
  target.set("quantize.imatrix.file", MetaValue::string(importance.file()));
  if (!importance.dataset().empty()) target.set("quantize.imatrix.dataset", MetaValue::string(importance.dataset()));
  target.set("quantize.imatrix.entries_count", MetaValue::u32(static_cast<std::uint32_t>(importance.size())));
  if (importance.chunks() > 0)
    target.set("quantize.imatrix.chunks_count", MetaValue::u32(static_cast<std::uint32_t>(importance.chunks())));
}

Metadata target_metadata(const ModelSource& source, const WriteOptions& options, const Recipe& recipe) {
  Metadata result = source.metadata;
  result.set("general.file_type", MetaValue::u32(recipe.file_type));
  result.set("general.quantization_version", MetaValue::u32(kQuantizationVersion));
  // Programs that do not know the tensors' type find here what it is.
  result.erase(kMxFormatKey);
  if (const auto format = mx_format_of(recipe.base))
    result.set(std::string(kMxFormatKey), MetaValue::string(mx_format_name(*format)));
  const auto set_length = [&result](const char* key, std::int32_t length) {
    if (length > 0) result.set(key, MetaValue::u32(static_cast<std::uint32_t>(length)));
  };
  set_length("dllm.canvas_length", options.canvas_length);
  set_length("diffusion.block_length", options.block_length);
  if (options.importance != nullptr) name_importance(*options.importance, result);
  if (!options.model_name.empty()) result.set("general.name", MetaValue::string(options.model_name));
  for (const auto& [key, value] : options.metadata) result.set(key, value);
  return result;
}

class ModelWriter {
 public:
  ModelWriter(const ModelSource& source, const WriteOptions& options, const std::vector<TypeChoice>& choices)
      : source_(source), options_(options), choices_(choices), encoder_(options.threads) {}

  Expected<void> write(Metadata metadata, const std::string& path, OutputOptions output) {
    GgufWriter writer(std::move(metadata));
    for (std::size_t i = 0; i < source_.tensors.size(); ++i) {
      const SourceTensor& tensor = source_.tensors[i];
      DLLM_CHECK_OK(writer.add(tensor.name, choices_[i].type, tensor.shape, [this, i] { return produce(i); }));
    }
    DLLM_CHECK_OK(writer.write(path, std::move(output)));
    tell("", source_.tensors.size());
    return {};
  }

 private:
  Expected<std::span<const std::byte>> produce(std::size_t index) {
    const SourceTensor& tensor = source_.tensors[index];
    if (options_.cancelled && options_.cancelled())
      return Error{ErrorCode::kCancelled, "the conversion was cancelled", tensor.name, ""};
    tell(tensor.name, index);
    if (options_.prepared != nullptr)
      if (const auto found = options_.prepared->find(tensor.name); found != options_.prepared->end())
        return found->second.payload();
    DLLM_TRY(const std::span<const float> importance, importance_of(tensor, options_));
    return encoder_.encode(tensor, choices_[index].type, importance);
  }

  void tell(std::string_view tensor, std::size_t done) const {
    if (options_.progress)
      options_.progress(tensor, static_cast<std::int64_t>(done), static_cast<std::int64_t>(source_.tensors.size()));
  }

  const ModelSource& source_;
  const WriteOptions& options_;
  const std::vector<TypeChoice>& choices_;
  TensorEncoder encoder_;
};

}  // namespace

WriteReport planned_report(const ModelSource& source, const std::vector<TypeChoice>& choices) {
  WriteReport report;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const SourceTensor& tensor = source.tensors[i];
    const auto& [type, instead_of] = choices[i];
    report.tensors += 1;
    report.elements += element_count(tensor.shape);
    report.bytes_out += row_count(tensor.shape) * codec(type).row_bytes(tensor.shape.front());
    report.tensors_by_type[type] += 1;
    if (instead_of) report.fallbacks.push_back({tensor.name, *instead_of, type});
  }
  return report;
}

std::vector<std::string> requantization_warnings(const ModelSource& source, const std::vector<TypeChoice>& choices) {
  std::int64_t requantized = 0;
  std::set<std::string_view> lossy;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const TensorType from = source.tensors[i].type, to = choices[i].type;
    if (!codec(from).is_block() || !codec(to).is_block() || from == to) continue;
    requantized += 1;
    lossy.insert(codec(from).name);
  }
  if (requantized == 0) return {};
  return {fmt::format(
      "{} tensors were quantized already ({}) and lose accuracy a second time; start from F32, F16 or BF16 if you can",
      requantized, fmt::join(lossy, ", "))};
}

Expected<std::vector<TypeChoice>> plan_types(const ModelSource& source, const WriteOptions& options,
                                             const std::string& path) {
  DLLM_TRY(const Recipe* recipe, find_recipe(options.type));
  if (options.threads < 1)
    return Error{ErrorCode::kUsage, fmt::format("{} is not a valid number of threads", options.threads), "",
                 "at least 1"};
  DLLM_CHECK_OK(check_block_length(source, options));
  OutputOptions output{.replace = options.replace};
  DLLM_TRY(output.sources, sources_of(source));
  DLLM_CHECK_OK(check_output(path, output));
  DLLM_TRY(auto choices, choose_types(*recipe, source, options.recipe));
  DLLM_CHECK_OK(check_encoders(source, choices));
  return choices;
}

namespace {

/// Whether what the target is made of is unchanged.
Expected<void> check_inputs(const ModelSource& source, const WriteOptions& options) {
  if (options.prepared != nullptr)
    for (const auto& [name, file] : *options.prepared) DLLM_CHECK_OK(file.check());
  return source.check();
}

}  // namespace

Expected<WriteReport> write_model(const ModelSource& source, const WriteOptions& options, const std::string& path) {
  DLLM_TRY(const auto choices, plan_types(source, options, path));
  DLLM_TRY(const Recipe* recipe, find_recipe(options.type));
  OutputOptions output{.replace = options.replace, .check = [&] { return check_inputs(source, options); }};
  DLLM_TRY(output.sources, sources_of(source));
  WriteReport report = planned_report(source, choices);
  for (const SourceTensor& tensor : source.tensors) report.bytes_in += static_cast<std::int64_t>(byte_size(tensor));
  report.warnings = requantization_warnings(source, choices);
  DLLM_TRY(const std::vector<std::string> without, importance_warnings(source, options, choices));
  report.warnings.insert(report.warnings.end(), without.begin(), without.end());
  auto written =
      ModelWriter(source, options, choices).write(target_metadata(source, options, *recipe), path, std::move(output));
  if (written) return report;
  DLLM_CHECK_OK(source.check());  // first: a file that has changed may also look damaged
  return std::move(written).error();
}

}  // namespace dllm

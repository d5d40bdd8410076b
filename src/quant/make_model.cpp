#include "quant/make_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/human_bytes.h"
#include "base/try.h"
#include "quant/random_weights.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

Expected<void> check_space(std::uint64_t bytes, const std::string& path) {
  std::error_code unknown;
  fs::path folder = fs::path(path).parent_path();
  const fs::space_info space = fs::space(folder.empty() ? fs::path(".") : folder, unknown);
  // The file to be replaced is kept until the new one is complete, so its bytes do not count as free.
  if (unknown || space.available >= bytes) return {};
  return Error{ErrorCode::kIo,
               fmt::format("the file needs {}, and {} are free", human_bytes(static_cast<double>(bytes)),
                           human_bytes(static_cast<double>(space.available))),
               path, "free some space, or give a smaller --type or --layers"};
}

class Maker {
 public:
  Maker(const ModelSource& source, const std::vector<TypeChoice>& choices, const MakeOptions& options,
        std::int64_t bytes)
      : source_(source), choices_(choices), options_(options), bytes_(bytes), weights_(options.seed, options.threads) {}

  Expected<void> write(Metadata metadata, const std::string& path, OutputOptions output) {
    GgufWriter writer(std::move(metadata));
    for (std::size_t i = 0; i < source_.tensors.size(); ++i) {
      const SourceTensor& tensor = source_.tensors[i];
      DLLM_CHECK_OK(writer.add_stream(tensor.name, choices_[i].type, tensor.shape,
                                      [this, i](const GgufWriter::Sink& sink) { return produce(i, sink); }));
    }
    DLLM_TRY(const std::uint64_t size, writer.file_bytes());
    DLLM_CHECK_OK(check_space(size, path));
    return writer.write(path, std::move(output));
  }

 private:
  Expected<void> produce(std::size_t index, const GgufWriter::Sink& sink) {
    const SourceTensor& tensor = source_.tensors[index];
    return weights_.stream(static_cast<std::uint32_t>(index), tensor.name, tensor.shape, choices_[index].type,
                           [&](std::span<const std::byte> bytes) -> Expected<void> {
                             if (options_.cancelled && options_.cancelled())
                               return Error{ErrorCode::kCancelled, "the writing was cancelled", tensor.name, ""};
                             written_ += static_cast<std::int64_t>(bytes.size());
                             if (options_.progress)
                               options_.progress(tensor.name,
                                                 static_cast<double>(written_) / static_cast<double>(bytes_));
                             return sink(bytes);
                           });
  }

  const ModelSource& source_;
  const std::vector<TypeChoice>& choices_;
  const MakeOptions& options_;
  std::int64_t bytes_, written_ = 0;
  RandomWeights weights_;
};

}  // namespace

Expected<WriteReport> make_model(const ModelShape& shape, const MakeOptions& options, const std::string& path) {
  DLLM_TRY(const Recipe* const recipe, find_recipe(options.type));
  if (options.threads < 1)
    return Error{ErrorCode::kUsage, fmt::format("{} is not a valid number of threads", options.threads), "",
                 "at least 1"};
  OutputOptions output{.replace = options.replace};
  DLLM_CHECK_OK(check_output(path, output));
  DLLM_TRY(const ModelSource source, shape_source(shape, options.shape));
  DLLM_TRY(const auto choices, choose_types(*recipe, source, options.recipe));
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (codec(choices[i].type).quantize == nullptr)
      return not_written(codec(choices[i].type).name, source.tensors[i].name);
  Metadata metadata = source.metadata;
  metadata.set("general.file_type", MetaValue::u32(recipe->file_type));
  metadata.set("general.quantization_version", MetaValue::u32(kQuantizationVersion));
  metadata.set("general.description",
               MetaValue::string(fmt::format("random weights of seed {}, made by dllm make-model", options.seed)));
  WriteReport report = planned_report(source, choices);
  DLLM_CHECK_OK(Maker(source, choices, options, report.bytes_out).write(std::move(metadata), path, std::move(output)));
  return report;
}

}  // namespace dllm

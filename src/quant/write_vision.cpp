#include "quant/write_vision.h"

#include <fmt/format.h>

#include <utility>

#include "base/output_file.h"
#include "base/try.h"
#include "format/gguf.h"
#include "model/vision.h"
#include "numerics/tensor_type.h"
#include "quant/recipe.h"
#include "quant/tensor_encoder.h"

namespace dllm {
namespace {

TensorType matrix_type(const std::string& recipe) {
  for (const TensorType type : {TensorType::kF32, TensorType::kBF16, TensorType::kQ8_0})
    if (codec(type).name == recipe) return type;
  return TensorType::kF16;
}

TensorType written_type(const SourceTensor& tensor, TensorType matrices) {
  if (tensor.shape.size() != 2) return TensorType::kF32;
  const bool fits = tensor.shape.front() % codec(matrices).block_elems == 0;
  return fits ? matrices : TensorType::kF16;
}

/// llama.cpp's number for a file's type (LLAMA_FTYPE).
std::uint32_t vision_file_type(TensorType matrices) {
  if (matrices == TensorType::kF32) return 0;
  if (matrices == TensorType::kBF16) return 32;
  return matrices == TensorType::kQ8_0 ? 7 : 1;
}

}  // namespace

Expected<void> write_vision(const ModelSource& source, const std::string& type, int threads, bool replace,
                            const std::string& path) {
  DLLM_TRY(const Recipe* const recipe, find_recipe(type));
  DLLM_TRY(const std::shared_ptr<const VisionModel> sound, VisionModel::load(source));  // before bytes are written
  const TensorType matrices = matrix_type(std::string(recipe->name));
  Metadata metadata = source.metadata;
  metadata.set("general.file_type", MetaValue::u32(vision_file_type(matrices)));
  metadata.set("general.quantization_version", MetaValue::u32(2));
  GgufWriter writer(std::move(metadata));
  TensorEncoder encoder(threads);
  for (const SourceTensor& tensor : source.tensors) {
    const TensorType wanted = written_type(tensor, matrices);
    DLLM_CHECK_OK(writer.add(tensor.name, wanted, tensor.shape,
                             [&encoder, &tensor, wanted] { return encoder.encode(tensor, wanted); }));
  }
  OutputOptions output{.replace = replace, .check = [&source] { return source.check(); }};
  for (const auto& file : source.files) output.sources.push_back(file->identity());
  return writer.write(path, std::move(output));
}

}  // namespace dllm

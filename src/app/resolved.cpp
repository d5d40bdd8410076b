#include "app/model_file.h"
#include "app/report.h"
#include "base/log.h"
#include "base/try.h"
#include "engine/method.h"
#include "model/describe.h"
#include "model/source.h"

namespace dllm::app {

Expected<GenerateOptions> resolved_options(const std::string& model_path, const GenerateOptions& options) {
  // LanguageModel does not tell its description, so the metadata is read again; the weights are not touched.
  auto source = model_path.empty() ? Expected<ModelSource>(Error{}) : open_source(model_path);
  if (model_path.empty()) {
    DLLM_TRY(GgufFile file, open_gguf(""));
    source = source_from_gguf(std::move(file));
  }
  if (!source) return std::move(source).error();
  const Metadata& metadata = source->metadata;
  DLLM_TRY(const auto name, metadata.string("general.architecture"));
  DLLM_TRY(const Architecture* const architecture, find_architecture(name.value_or("")));
  std::optional<Tokenizer> tokenizer;
  if (auto spec = Tokenizer::spec_from_gguf(metadata)) {
    DLLM_TRY(tokenizer, Tokenizer::create(*std::move(spec)));
  }
  const SourceTensor* embedding = source->find("token_embd.weight");
  const TensorFacts facts{embedding && embedding->shape.size() == 2 ? embedding->shape[1] : 0,
                          static_cast<std::int64_t>(source->tensors.size()), source->find("output.weight") != nullptr};
  const Log silent([](LogLevel, const std::string&) {});  // loading has reported what there is to report
  DLLM_TRY(const ModelDesc desc, describe(*architecture, metadata, facts, tokenizer ? &*tokenizer : nullptr, silent));
  return resolve_options(options, desc);
}

}  // namespace dllm::app

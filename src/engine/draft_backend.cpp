#include "engine/draft_backend.h"

#include <fmt/format.h>

#include "base/try.h"

namespace dllm {

Expected<std::vector<Scores>> DraftBackend::forward(std::span<const SequenceStep> batch) {
  std::vector<Scores> all(batch.size());
  for (Backend* backend : {model_.get(), drafts_.get()}) {
    std::vector<SequenceStep> own;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if ((batch[i].plan.region == Region::kCanvas) != (backend == drafts_.get())) continue;
      own.push_back(batch[i]);
      places.push_back(i);
    }
    if (own.empty()) continue;
    DLLM_TRY(std::vector<Scores> scores, backend->forward(own));
    for (std::size_t i = 0; i < places.size(); ++i) all[places[i]] = std::move(scores[i]);
  }
  return all;
}

Expected<void> check_draft_model(const ModelDesc& model, const ModelDesc& drafts) {
  if (model.modes.empty() || model.has_mode(DecodingMode::kSlots))
    return Error{ErrorCode::kUsage, "the model makes no drafts", "--draft-model", "leave the option out"};
  if (model.introspective)
    return Error{ErrorCode::kUnsupported, "the model drafts in the pass that verifies", "--draft-model",
                 "leave the option out"};
  const auto differ = [](std::string what) {
    return Error{ErrorCode::kMismatch, std::move(what), "--draft-model",
                 "give the same model, quantized in another way"};
  };
  if (model.architecture != drafts.architecture)
    return differ(fmt::format("a '{}' cannot draft for a '{}'", drafts.architecture, model.architecture));
  struct Size {
    const char* name;
    std::int64_t ModelDesc::* member;
  };
  for (const Size& size : {Size{"tokens", &ModelDesc::vocab}, Size{"layers", &ModelDesc::layers},
                           Size{"KV heads", &ModelDesc::kv_heads}, Size{"lanes per head", &ModelDesc::head_dim}})
    if (model.*size.member != drafts.*size.member)
      return differ(fmt::format("it has {} {}, the model {}", drafts.*size.member, size.name, model.*size.member));
  if (model.mask != drafts.mask) return differ("its mask token is another one");
  return {};
}

}  // namespace dllm

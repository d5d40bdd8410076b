#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/forks.h"
#include "base/log.h"
#include "base/try.h"
#include "dllm/model.h"
#include "engine/answer_host.h"
#include "engine/backends.h"
#include "engine/constraint.h"
#include "engine/generate.h"
#include "engine/images.h"
#include "engine/method.h"
#include "engine/replay.h"
#include "engine/resolve.h"
#include "engine/turns.h"
#include "engine/virtual_time.h"
#include "format/mapped_file.h"
#include "model/describe.h"
#include "model/model.h"
#include "text/chat_template.h"

namespace dllm {

/// A loaded model, its backend, and what its generations share.
struct LanguageModel::Impl {
  std::shared_ptr<const Model> model;
  RunningBackend running;
  std::optional<ChatTemplate> own_template;
  bool special_content = false;           ///< see set_special_content()
  std::string template_variables = "{}";  ///< see set_template_variables()
  Turns passes;                           ///< a backend runs one forward at a time
  Log log;
  Constraints constraints;
  std::unique_ptr<Images> images;                         ///< null: prompts may not have any
  std::map<int, OfThisProcess<PassRunner>> second_paths;  ///< by threads; guarded by passes
  std::map<std::string, LatencyTable, std::less<>>
      latency_tables;  ///< by the window option `latency`; guarded by passes

  explicit Impl(Turns::Poll poll) : passes(std::move(poll)) {}

  /// After the backend is made. Errors: those of Images::load(); kUnsupported (model or backend reads none).
  Expected<void> load_images(const LoadOptions& options);

  /// The model as its backend runs it: a drafter beside it is a way of decoding.
  const ModelDesc& desc() const { return running.backend->desc(); }

  const ChatTemplate* chat_template(bool tools = false) const {
    if (own_template) return &*own_template;
    return tools ? model->tool_template() : model->chat_template();
  }

  Expected<const Tokenizer*> tokenizer() const { return model->require_tokenizer(); }

  Expected<ResolvedOptions> resolve(const GenerateOptions& options) const {
    DLLM_TRY(const std::int32_t canvas, canvas_length(model->metadata()));
    return resolve_options(options, desc(), canvas);
  }

  /// `result`, or an error if it was computed from files that have changed since.
  template <class T>
  Expected<T> checked(Expected<T> result) const {
    DLLM_CHECK_OK(model->check());
    DLLM_CHECK_OK(check_unchanged(running.files));
    return result;
  }

  /// What a generation needs of the model. Its passes are turns among those of other calls. A virtual clock counts one
  /// answer at a time, which then has the backend until its end.
  struct Answering {
    std::unique_ptr<SharedBackend> backend;
    AnswerHost host;
  };
  Expected<Answering> begin(const ResolvedOptions& resolved, std::stop_token stop) {
    DLLM_TRY(Turns::Turn turn, passes.take());
    DLLM_TRY(const LatencyTable* const latency, latency_table(resolved, std::move(stop)));
    DLLM_TRY(PassRunner* const second, second_path(resolved));
    if (running.clock) running.clock->reset();
    std::optional<Turns::Turn> whole;
    if (running.clock) whole.emplace(std::move(turn));
    auto backend = std::make_unique<SharedBackend>(*running.backend, passes, std::move(whole));
    const AnswerHost host{*backend, model->tokenizer(), latency, second};
    return Answering{std::move(backend), host};
  }

  /// Null: the options ask for none.
  Expected<ConstraintPtr> constraint_of(const ResolvedOptions& resolved, const std::stop_token& stop,
                                        const Preamble& preamble = {}) {
    return constraints.get(resolved, desc(), model->tokenizer(), preamble, stop);
  }

  Expected<Generation> generate(const TemplatedPrompt& prompt, const GenerateOptions& options,
                                const StepCallback& on_step, std::stop_token stop) {
    DLLM_TRY(const ResolvedOptions resolved, resolve(options));
    DLLM_TRY(const ConstraintPtr constraint, constraint_of(resolved, stop));
    DLLM_TRY(const Answering answering, begin(resolved, stop));
    const GenerateCall call{
        .on_step = on_step, .stop = std::move(stop), .constraint = constraint, .images = prompt.images};
    DLLM_TRY(Generation answer, checked(dllm::generate(answering.host, prompt.ids, resolved, call)));
    if (running.clock) answer.virtual_time = running.clock->read(answer);
    return answer;
  }

  Expected<Generation> replay(const Generation& recorded, std::stop_token stop) {
    DLLM_TRY(const CommitSchedule schedule, schedule_of(recorded));
    DLLM_TRY(const Answering answering, begin(recorded.options, stop));
    const GenerateCall call{.stop = std::move(stop), .replay = &schedule};
    DLLM_TRY(Generation again, checked(dllm::generate(answering.host, recorded.prompt_ids, recorded.options, call)));
    if (again.finish == FinishReason::kCancelled) return again;
    DLLM_CHECK_OK(check_replayed(again, schedule));
    DLLM_CHECK_OK(check_same_work(again, recorded));
    return again;
  }

  Expected<std::vector<Generation>> generate_batch(const std::vector<TemplatedPrompt>& prompts,
                                                   const GenerateOptions& options, std::int32_t batch,
                                                   const AnswerCallback& on_answer, std::stop_token stop,
                                                   const std::vector<std::uint64_t>& seeds) {
    if (batch < 1) return Error{ErrorCode::kUsage, fmt::format("a batch of {}", batch), "--batch", "give at least 1"};
    DLLM_TRY(const ResolvedOptions resolved, resolve(options));
    DLLM_TRY(const ConstraintPtr constraint, constraint_of(resolved, stop));
    DLLM_TRY(const Answering answering, begin(resolved, stop));
    std::vector<std::vector<TokenId>> ids;
    std::vector<std::shared_ptr<const PromptImages>> shown;
    for (const TemplatedPrompt& prompt : prompts) {
      ids.push_back(prompt.ids);
      shown.push_back(prompt.images);
    }
    const BatchCall call{.batch = batch,
                         .on_answer = on_answer,
                         .stop = std::move(stop),
                         .constraint = constraint,
                         .seeds = seeds,
                         .images = shown};
    return checked(dllm::generate_batch(answering.host, ids, resolved, call));
  }

  /// The cost of steps, if the request or one of its methods needs it; else null.
  Expected<const LatencyTable*> latency_table(const ResolvedOptions& resolved, std::stop_token stop) {
    const std::string name = latency_name(resolved);
    if (name.empty()) return nullptr;
    if (const auto known = latency_tables.find(name); known != latency_tables.end()) return &known->second;
    DLLM_TRY(LatencyTable table, step_costs(running, name, log, std::move(stop)));
    return &latency_tables.emplace(name, std::move(table)).first->second;
  }

  /// The runner of the second path, made at its first use; null if the request uses no second path.
  Expected<PassRunner*> second_path(const ResolvedOptions& resolved) {
    const auto wanted = second_path_of(resolved, desc());
    if (!wanted) return nullptr;
    OfThisProcess<PassRunner>& runner = second_paths[wanted->refresh_threads];
    if (!runner || is_stale(runner)) {
      DLLM_TRY(auto made, second_path_runner(running, wanted->refresh_threads));
      runner = OfThisProcess<PassRunner>(made.release());
    }
    return runner.get();
  }

  /// Ids of a prompt, with the special tokens that the metadata requires.
  /// `special`: texts of control tokens in content become those tokens too.
  Expected<std::vector<TokenId>> encode_prompt(const MarkedText& text, bool special) const {
    DLLM_TRY(const Tokenizer* const tok, tokenizer());
    std::vector<TokenId> ids = special ? tok->encode(text.bytes, /*parse_special=*/true) : tok->encode(text);
    const TokenizerSpec& spec = tok->spec();
    // Templates usually write the bos token themselves; a second one would shift every answer.
    if (spec.add_bos && spec.bos && (ids.empty() || ids.front() != *spec.bos)) ids.insert(ids.begin(), *spec.bos);
    return ids;
  }

  Expected<TemplatedPrompt> encode_turns(const std::vector<ChatTurn>& turns) const;
  /// Puts images in their places. Errors: kUsage (there are some, and no tower), and those of Images::place().
  Expected<TemplatedPrompt> with_images(TemplatedPrompt prompt, const std::vector<std::string>& files,
                                        const StopToken& stop = {}) const;
  /// The ids of what the chat template makes of `variables`, an object. Like transformers, adds the special tokens'
  /// texts, and `tools` and `documents` as none if they are absent.
  Expected<TemplatedPrompt> encode_variables(nlohmann::ordered_json variables) const;
};

}  // namespace dllm

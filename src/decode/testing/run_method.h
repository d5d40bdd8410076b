#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decode/loop/check_steps.h"
#include "decode/loop/denoiser.h"
#include "decode/registry.h"
#include "decode/testing/fake_backend.h"
#include "decode/testing/make_method.h"

namespace dllm::test {

/// A model of 100 tokens; 99 is the mask and 49 ends a sequence.
inline ModelDesc masked_desc(std::int32_t causal_block = 0, std::int32_t shift = 0) {
  ModelDesc desc;
  desc.vocab = 100;
  desc.mask = 99;
  desc.eos = 49;
  desc.causal_block = causal_block;
  desc.logit_shift = shift;
  return desc;
}

/// A request for the loop only, with every part by name.
struct MethodRun {
  std::string window = "block", cache = "none", decoder = "threshold";
  MethodContext grid{.origin = BlockOrigin::kPromptEnd, .block_length = 8, .length = 24};
  OptionMap config{}, window_config{}, cache_config{};  ///< of the decoder, the window, the cache policy
  DenoiseOptions options = exact_length();
  Position prompt = 5;

  static DenoiseOptions exact_length() {
    DenoiseOptions result;
    result.exact_length = true;
    return result;
  }
};

struct MethodResult {
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> commit_pass;  ///< by answer position, -1: never
  std::vector<DenoiseStep> steps;
  DenoiseCounters counters;
  std::optional<Position> stop;
  bool finished = false;  ///< within 500 passes
};

/// The prompt 1, 2, 3, ... followed by masks.
inline Canvas canvas_of(const MethodRun& run, const ModelDesc& desc) {
  std::vector<TokenId> prompt;
  for (Position p = 0; p < run.prompt; ++p) prompt.push_back(p + 1);
  return Canvas(prompt, run.grid.length, desc.mask.value_or(-1));
}

/// The parts; each gets those of the options that it declares.
inline Method method_of(const MethodRun& run) {
  return {*make_window({run.window, fitting(windows(), run.window, run.window_config)}, run.grid),
          *make_cache_policy({run.cache, fitting(caches(), run.cache, run.cache_config)}, run.grid),
          *make_decoder({run.decoder, fitting(decoders(), run.decoder, run.config)}, run.grid)};
}

/// `policy`: instead of the one named.
inline MethodResult run_method(FakeBackend& backend, const MethodRun& run,
                               std::unique_ptr<CachePolicy> policy = nullptr) {
  Canvas canvas = canvas_of(run, backend.desc());
  Method method = method_of(run);
  if (policy) method.cache = std::move(policy);
  auto cache = *backend.make_cache(canvas.size());
  auto unconditional = *backend.make_cache(canvas.size());
  DenoiseOptions options = run.options;
  std::vector<std::unique_ptr<KvCache>> branches;
  const MethodTraits traits = traits_of(decoders(), {run.decoder, fitting(decoders(), run.decoder, run.config)});
  for (std::int32_t i = 0; i < check_branches(backend.desc(), traits.checks); ++i) {
    branches.push_back(*backend.make_cache(canvas.size()));
    options.branches.push_back(branches.back().get());
  }
  Denoiser denoiser(backend.desc(), std::move(canvas), std::move(method), options, *cache,
                    run.options.cfg_scale != 0 ? unconditional.get() : nullptr);
  MethodResult result;
  result.commit_pass.assign(static_cast<std::size_t>(run.grid.length), -1);
  for (auto batch = denoiser.prepare(); !batch.empty(); batch = denoiser.prepare()) {
    const std::int32_t pass = denoiser.counters().nfe;
    if (pass > 500) return result;
    const auto scores = *backend.forward(batch);
    auto step = denoiser.absorb(scores);
    if (!step) return result;
    for (const Edit& edit : step->edits)
      result.commit_pass[static_cast<std::size_t>(edit.position - run.prompt)] = pass;
    result.steps.push_back(*std::move(step));
  }
  for (Position p = 0; p < denoiser.canvas().size(); ++p) result.tokens.push_back(denoiser.canvas().token(p));
  result.counters = denoiser.counters();
  result.stop = denoiser.stop_position();
  result.finished = true;
  return result;
}

}  // namespace dllm::test

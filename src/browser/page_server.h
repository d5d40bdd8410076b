#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "browser/page_answer.h"
#include "dllm/model.h"
#include "dllm/scheduler.h"

namespace dllm::browser {

/// What a route replies.
struct Reply {
  int status = 200;
  std::string body;  ///< JSON; of a started answer: empty, step() has its events
};

/// The routes of `dllm serve` that its page uses, without a network: the page is the same in a browser that has the
/// engine inside. One model, one answer at a time; a pass is one call, so that the caller can look for messages between
/// two of them.
class PageServer {
 public:
  ~PageServer();

  /// Replaces the model. `gguf` must stay until another load, or the end. `embedded`: the site's own file.
  Expected<void> load(std::span<const std::byte> gguf, const std::string& name, bool embedded,
                      const LoadOptions& options);
  /// props, options, v1/chat/completions; a path's query is the caller's business.
  Reply call(std::string_view path, std::string_view body);
  /// One forward pass of the answer that was started. False: there is none, or it has ended. `events`: what happened.
  bool step(std::string& events);
  void cancel();
  /// nullptr: none is loaded.
  const LanguageModel* model() const { return model_ ? &*model_ : nullptr; }

 private:
  Expected<std::string> props() const;
  Expected<void> begin(std::string_view body);

  std::optional<LanguageModel> model_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<PageAnswer> answer_;
  RequestId running_ = 0;
  std::string name_;
  bool embedded_ = false;
};

}  // namespace dllm::browser

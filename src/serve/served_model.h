#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dllm/model.h"
#include "dllm/scheduler.h"
#include "serve/errors.h"
#include "serve/file_watch.h"
#include "serve/model_pool.h"
#include "serve/server.h"
#include "serve/template_facts.h"

namespace dllm::serve {

inline constexpr std::string_view kDefaultName = "default";  ///< the served model, whatever it is called

/// A model that someone else owns, for ServedModel::create().
inline std::shared_ptr<const LanguageModel> borrowed(const LanguageModel& model) {
  return {std::shared_ptr<const LanguageModel>(), &model};
}

/// A loaded model with its scheduler, the thread of its rounds, and the watch over its files. Thread-safe.
class ServedModel final : public PooledModel {
 public:
  struct Events {
    /// An event of the model's files, and the path.
    std::function<void(const std::string& event, const std::string& path)> file{};
    std::function<void()> lost{};           ///< its file has changed: no further answer can be right
    std::function<void()> out_of_memory{};  ///< the rounds have ended
    std::function<void(const std::string& why)> device_lost{};       ///< likewise
    std::function<void(const RanksEvent&)> ranks{};                  ///< ranks were lost or have returned
    std::function<void(const SchedulerCounters& counters)> ended{};  ///< it is being destroyed
    std::string after_loss;  ///< what lost() does, for messages: "the server ends"
  };

  /// `names`: see names(); empty: the model's own. Errors: kUsage (options).
  static Expected<std::unique_ptr<ServedModel>> create(std::shared_ptr<const LanguageModel> loaded,
                                                       const ServerOptions& settings, std::vector<std::string> names,
                                                       std::string path, Events events);
  /// Cancels all unfinished requests.
  ~ServedModel() override;

  /// Begins the rounds.
  void start();
  /// Ends the rounds and the watch; requests stay unfinished.
  void stop();

  /// The model name in answers.
  const std::string& name() const { return names_.front(); }
  const std::vector<std::string>& names() const { return names_; }
  /// Whether requests may call the model so.
  bool is_served(std::string_view asked) const;
  /// Errors if a text cannot fit into the context however it is tokenized; avoids tokenizing it.
  Expected<void> check_size(std::size_t bytes, std::string_view field) const;
  /// K/V positions that fit at once.
  std::int64_t capacity() const;
  int retry_seconds() const;
  /// What its file says, as a server with several models lists it; the time is that of the load. `name`: one of
  /// names().
  ModelEntry entry(std::string name) const;
  /// Of the chat template; `tools`: of the one for conversations with tools.
  const TemplateFacts& facts(bool tools) const { return tools ? tool_facts_ : facts_; }
  /// All control tokens of the vocabulary.
  const std::vector<std::int32_t>& control_tokens() const { return control_tokens_; }
  /// Why the model cannot answer now; nullopt: it can. Without a group of ranks, this ends by itself.
  std::optional<ApiError> unfit() const;
  /// Name of its file, without folders; empty: the embedded model.
  std::string file_name() const;

 private:
  const std::shared_ptr<const LanguageModel> loaded_;
  std::unique_ptr<Scheduler> scheduler_;

 public:
  const LanguageModel& model;
  Scheduler& scheduler;
  const ServerOptions& options;
  std::atomic<std::int32_t> scoring{0};  ///< unfinished requests to /v1/score and /v1/choose

 private:
  ServedModel(std::shared_ptr<const LanguageModel> loaded, std::unique_ptr<Scheduler> requests,
              const ServerOptions& settings, std::vector<std::string> names, std::string path, Events events);
  void run(const std::stop_token& stop);

  std::vector<std::string> names_;
  std::string path_;
  Events events_;
  std::size_t longest_token_ = 1;  ///< bytes
  std::vector<std::int32_t> control_tokens_;
  TemplateFacts facts_, tool_facts_;
  std::int64_t created_ = 0;  ///< seconds since 1970
  std::unique_ptr<FileWatch> watch_;
  std::jthread rounds_;  ///< last: it uses the other members
};

/// What a server's pool keeps; null: the model is not loaded.
inline ServedModel* served_by(const ModelPool::Lease& lease) { return static_cast<ServedModel*>(lease.model); }

}  // namespace dllm::serve

#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "serve/model_pool.h"

namespace dllm::app {

/// The models in a folder and in the hub's cache, as a server lists them. Files that come and go are noticed within a
/// second after somebody asks. A thread of its own looks at them, so that a slow disk delays nobody who names a known
/// model. Thread-safe.
class ModelCatalog {
 public:
  using Entries = std::vector<serve::ModelEntry>;

  /// `first`: is listed first, and found by an empty name; nullopt: the first of the others is. `folder`: GGUF files
  /// and Hugging Face directories, in it and one level below; empty: none. `cache`: see hub::Config; empty: none.
  /// Looks at the files before it returns.
  ModelCatalog(std::optional<serve::ModelEntry> first, std::string folder, std::string cache);

  /// A list older than a second is read again first. If that takes too long, the older list is returned.
  Entries list();
  /// By the name in list(), or another by which the model may be called: with ".gguf", with the type of its file
  /// ("org/model:Q8_0", in small or capital letters). A name that was known is found at once.
  std::optional<serve::ModelEntry> find(const std::string& name);

 private:
  using Clock = std::chrono::steady_clock;
  std::shared_ptr<const Entries> known(std::chrono::milliseconds wait);
  void run(const std::stop_token& stop);
  std::shared_ptr<const Entries> scan();
  void add(std::string name, const std::string& path);
  void add_folder(const std::string& folder, const std::string& prefix, bool deeper);

  const std::optional<serve::ModelEntry> first_;
  const std::string folder_, cache_;
  // Of the thread that looks.
  Entries entries_;
  /// What files say, by name, path, size and modification time; nullopt: it is no model.
  std::map<std::string, std::optional<serve::ModelEntry>> facts_, old_facts_;

  std::mutex mutex_;
  std::condition_variable_any wake_, looked_;
  std::shared_ptr<const Entries> known_;
  Clock::time_point scanned_;  ///< when the look at known_ began
  bool asked_ = false;
  std::jthread thread_;  ///< last: it uses the other members
};

/// What a model's file says about it; nullopt: it is no model, as an adapter. `name`: of the entry. Of the embedded
/// model if the path is empty.
std::optional<serve::ModelEntry> model_entry(std::string name, const std::string& path);

/// "x" of "folder/x-00001-of-00003.gguf" and "folder/x.gguf"; of a folder, its name.
std::string model_stem(const std::string& path);

}  // namespace dllm::app

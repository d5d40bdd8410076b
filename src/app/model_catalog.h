#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/model_pool.h"

namespace dllm::app {

/// The models in a folder and in the hub's cache, as a server lists them. Files that come and go are noticed within a
/// second. Thread-safe.
class ModelCatalog {
 public:
  /// `first`: is listed first, and found by an empty name; nullopt: the first of the others is. `folder`: GGUF files
  /// and Hugging Face directories, in it and one level below; empty: none. `cache`: see hub::Config; empty: none.
  ModelCatalog(std::optional<serve::ModelEntry> first, std::string folder, std::string cache)
      : first_(std::move(first)), folder_(std::move(folder)), cache_(std::move(cache)) {}

  std::vector<serve::ModelEntry> list();
  /// By the name in list(), or another by which the model may be called: with ".gguf", with the type of its file
  /// ("org/model:Q8_0", in small or capital letters).
  std::optional<serve::ModelEntry> find(const std::string& name);

 private:
  using Clock = std::chrono::steady_clock;
  const std::vector<serve::ModelEntry>& current();
  void scan();
  void add(std::string name, const std::string& path);
  void add_folder(const std::string& folder, const std::string& prefix, bool deeper);

  const std::optional<serve::ModelEntry> first_;
  const std::string folder_, cache_;
  std::mutex mutex_;
  std::vector<serve::ModelEntry> entries_;
  std::optional<Clock::time_point> scanned_;
  /// What files say, by name, path, size and modification time; nullopt: it is no model.
  std::map<std::string, std::optional<serve::ModelEntry>> facts_, old_facts_;
};

/// What a model's file says about it; nullopt: it is no model, as an adapter. `name`: of the entry. Of the embedded
/// model if the path is empty.
std::optional<serve::ModelEntry> model_entry(std::string name, const std::string& path);

/// "x" of "folder/x-00001-of-00003.gguf" and "folder/x.gguf"; of a folder, its name.
std::string model_stem(const std::string& path);

}  // namespace dllm::app

#include "app/model_catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "app/cli/fit.h"
#include "app/cli/model_file.h"
#include "base/input_file.h"
#include "engine/embedded_model.h"
#include "format/gguf.h"
#include "hub/cached_models.h"
#include "hub/text.h"
#include "numerics/tensor_type.h"

namespace dllm::app {
namespace {

namespace fs = std::filesystem;
using serve::ModelEntry;

constexpr std::chrono::seconds kFresh{1};
/// Whoever asks for the list, or for an unknown name, holds one of the server's few readers.
constexpr std::chrono::milliseconds kLook{250};

std::int64_t modified_seconds(const std::string& path) {
  std::error_code failure;
  const auto time = fs::last_write_time(path, failure);
  if (failure) return 0;
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::file_clock::to_sys(time).time_since_epoch())
      .count();
}

std::int64_t integer_or_zero(const Metadata& metadata, const std::string& key) {
  const auto value = metadata.integer(key);
  return value && *value ? **value : 0;
}

std::string text_or_empty(const Metadata& metadata, const std::string& key) {
  const auto value = metadata.string(key);
  return value && *value ? **value : "";
}

/// Adds the file's parameters to those of their types.
void add_tensors(const GgufFile& file, std::map<TensorType, std::int64_t>& parameters) {
  for (const GgufTensor& tensor : file.tensors()) parameters[tensor.type] += element_count(tensor.shape);
}

/// False: it is no model.
bool read_gguf(const GgufFile& file, const std::string& path, ModelEntry& entry) {
  const Metadata& metadata = file.metadata();
  if (const std::string type = text_or_empty(metadata, "general.type"); !type.empty() && type != "model") return false;
  entry.architecture = text_or_empty(metadata, "general.architecture");
  entry.context_length = integer_or_zero(metadata, entry.architecture + ".context_length");
  entry.chat_template = text_or_empty(metadata, "tokenizer.chat_template");
  if (const auto tokens = metadata.strings("tokenizer.ggml.tokens"); tokens && *tokens != nullptr)
    entry.vocabulary = static_cast<std::int64_t>((*tokens)->size());
  std::map<TensorType, std::int64_t> parameters;
  add_tensors(file, parameters);
  const std::vector<std::string> parts = path.empty() ? std::vector<std::string>() : gguf_parts(path);
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (const auto part = GgufFile::open_part(parts[i])) add_tensors(*part, parameters);
  for (const auto& [type, count] : parameters) entry.parameters += count;
  const auto most = std::ranges::max_element(parameters, {}, &std::pair<const TensorType, std::int64_t>::second);
  if (most != parameters.end()) entry.type = codec(most->first).name;
  return true;
}

/// Of a Hugging Face directory: what config.json says under its usual keys.
void read_config_json(const std::string& folder, ModelEntry& entry) {
  const auto text = read_input((fs::path(folder) / "config.json").string());
  if (!text) return;
  const auto config = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return;
  const auto integer = [&config](const char* key) -> std::int64_t {
    const auto found = config.find(key);
    return found != config.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  entry.context_length = std::max(integer("max_position_embeddings"), integer("max_sequence_length"));
  entry.vocabulary = integer("vocab_size");
  if (const auto type = config.find("model_type"); type != config.end() && type->is_string())
    entry.architecture = type->get<std::string>();
}

bool is_gguf_model(const fs::path& path) {
  const std::string name = hub::lower(path.filename().string());
  if (!name.ends_with(".gguf") || name.find("mmproj") != name.npos || name.find("imatrix") != name.npos) return false;
  // Later parts of a split model belong to the first.
  const auto of = name.rfind("-of-");
  return of == name.npos || of < 6 || of + 14 != name.size() || name.substr(of - 6, 6) == "-00001";
}

bool is_checkpoint(const fs::path& folder) {
  std::error_code failure;
  if (!fs::is_regular_file(folder / "config.json", failure)) return false;  // a pipe would be waited for
  for (fs::directory_iterator file(folder, failure), end; !failure && file != end; file.increment(failure))
    if (file->path().extension() == ".safetensors") return true;
  return false;
}

std::optional<ModelEntry> find_in(const std::vector<ModelEntry>& all, const std::string& name) {
  if (name.empty()) return all.empty() ? std::nullopt : std::optional(all.front());
  for (const ModelEntry& one : all)
    if (one.name == name || one.name + ".gguf" == name) return one;
  const auto colon = name.find(':');
  if (colon == name.npos) return std::nullopt;
  const std::string type = hub::lower(name.substr(colon + 1));
  for (const ModelEntry& one : all) {
    const bool same = one.name.substr(0, one.name.find(':')) == name.substr(0, colon);
    const std::string stem = hub::lower(model_stem(one.path));
    if (same && !type.empty() && (stem.ends_with("-" + type) || stem.ends_with("." + type))) return one;
  }
  return std::nullopt;
}

}  // namespace

std::string model_stem(const std::string& path) {
  fs::path file(path);
  if (!file.has_filename()) file = file.parent_path();
  std::string name = file.filename().string();
  if (!hub::lower(name).ends_with(".gguf")) return name;
  name.resize(name.size() - 5);
  constexpr std::size_t kPart = 15;  // "-00001-of-00003"
  if (name.size() > kPart && name.substr(name.size() - kPart).starts_with("-00001-of-"))
    name.resize(name.size() - kPart);
  return name;
}

std::optional<ModelEntry> model_entry(std::string name, const std::string& path) {
  ModelEntry entry{.name = std::move(name), .path = path};
  if (path.empty()) {
    const auto file = open_gguf("");
    if (!file || !read_gguf(*file, "", entry)) return std::nullopt;
    if (entry.name.empty()) entry.name = text_or_empty(file->metadata(), "general.name");
    entry.bytes = static_cast<std::int64_t>(embedded_model().size());
    return entry;
  }
  entry.bytes = model_bytes(path);
  entry.modified = modified_seconds(path);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    read_config_json(path, entry);
  } else if (const auto file = GgufFile::open_part(path); file && !read_gguf(*file, path, entry)) {
    return std::nullopt;
  }
  return entry;
}

void ModelCatalog::add(std::string name, const std::string& path) {
  const auto same_name = [&name](const ModelEntry& one) { return one.name == name; };
  if (std::ranges::any_of(entries_, same_name)) return;
  if (first_ && !first_->path.empty()) {
    std::error_code ignored;
    if (fs::equivalent(first_->path, path, ignored)) return;
  }
  const std::string key = fmt::format("{}\n{}\n{}\n{}", name, path, model_bytes(path), modified_seconds(path));
  const auto known = old_facts_.find(key);
  auto entry = known != old_facts_.end() ? known->second : model_entry(name, path);
  if (entry) entries_.push_back(*entry);
  facts_.emplace(key, std::move(entry));
}

void ModelCatalog::add_folder(const std::string& folder, const std::string& prefix, bool deeper) {
  std::vector<fs::path> paths;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (!entry->path().filename().string().starts_with('.')) paths.push_back(entry->path());
  std::ranges::sort(paths);
  for (const fs::path& path : paths) {
    std::error_code ignored;
    const bool inner = fs::is_directory(path, ignored);
    if (inner && is_checkpoint(path))
      add(prefix + path.filename().string(), path.string());
    else if (inner && deeper)
      add_folder(path.string(), prefix + path.filename().string() + "/", /*deeper=*/false);
    else if (fs::is_regular_file(path, ignored) && is_gguf_model(path))
      add(prefix + model_stem(path.string()), path.string());
  }
}

std::shared_ptr<const ModelCatalog::Entries> ModelCatalog::scan() {
  entries_.clear();
  old_facts_ = std::exchange(facts_, {});
  if (first_) entries_.push_back(*first_);
  if (!folder_.empty()) add_folder(folder_, "", /*deeper=*/true);
  if (!cache_.empty())
    for (const hub::CachedModel& one : hub::cached_models(cache_))
      if (!one.path.empty()) add(one.name, one.path);
  return std::make_shared<const Entries>(entries_);
}

ModelCatalog::ModelCatalog(std::optional<ModelEntry> first, std::string folder, std::string cache)
    : first_(std::move(first)),
      folder_(std::move(folder)),
      cache_(std::move(cache)),
      known_(scan()),
      scanned_(Clock::now()),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void ModelCatalog::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, stop, [this] { return asked_; })) {
    asked_ = false;
    const Clock::time_point begun = Clock::now();
    lock.unlock();
    std::shared_ptr<const Entries> found;
    try {
      found = scan();
    } catch (const std::exception&) {  // memory or a file system failed: what was known stays
    }
    lock.lock();
    if (found) known_ = std::move(found);
    scanned_ = begun;
    looked_.notify_all();
  }
}

/// What is known, at most a second old, or older if a look takes longer than `wait`.
std::shared_ptr<const ModelCatalog::Entries> ModelCatalog::known(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  const Clock::time_point oldest = Clock::now() - kFresh;
  if (scanned_ < oldest) {
    asked_ = true;
    wake_.notify_one();
    looked_.wait_for(lock, wait, [&] { return scanned_ >= oldest; });
  }
  return known_;
}

ModelCatalog::Entries ModelCatalog::list() { return *known(kLook); }

std::optional<ModelEntry> ModelCatalog::find(const std::string& name) {
  auto entry = find_in(*known(std::chrono::milliseconds(0)), name);
  return entry ? entry : find_in(*known(kLook), name);
}

}  // namespace dllm::app

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/terminal.h"
#include "app/cli/verb.h"
#include "app/model_catalog.h"
#include "base/human_bytes.h"
#include "base/try.h"
#include "hub/cached_models.h"
#include "hub/config.h"

namespace dllm::app {
namespace {

Expected<std::string> cache_folder() {
  DLLM_TRY(const hub::Config config, hub::config_from(hub::process_environment));
  return config.cache;
}

/// A model of the cache, and what its file says.
struct Listed {
  hub::CachedModel model;
  std::string architecture{}, type{};
};

std::vector<Listed> listed_models(const std::string& cache) {
  std::vector<Listed> all;
  for (hub::CachedModel& one : hub::cached_models(cache)) {
    Listed& listed = all.emplace_back(Listed{.model = std::move(one)});
    if (listed.model.path.empty()) continue;
    const auto entry = model_entry(listed.model.name, listed.model.path);
    if (entry) listed.architecture = entry->architecture, listed.type = entry->type;
  }
  return all;
}

class List final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags&, Session& session) override {
    DLLM_TRY(const std::string cache, cache_folder());
    const std::vector<Listed> all = listed_models(cache);
    if (output_ == "json") {
      session.terminal.out << dump(json(all)) << "\n";
      return kExitOk;
    }
    if (all.empty()) {
      session.terminal.err << "no models in " << cache << ": dllm pull ORG/MODEL[:TYPE] brings one\n";
      return kExitOk;
    }
    std::size_t width = 4;
    for (const Listed& one : all) width = std::max(width, one.model.name.size());
    session.terminal.out << fmt::format("{:<{}}  {:>10}  {:<6}  {}\n", "NAME", width, "SIZE", "TYPE", "ARCHITECTURE");
    for (const Listed& one : all)
      session.terminal.out << fmt::format("{:<{}}  {:>10}  {:<6}  {}\n", one.model.name, width,
                                          human_bytes(static_cast<double>(one.model.bytes)), one.type,
                                          one.model.path.empty() ? "(no complete model)" : sanitize(one.architecture));
    return kExitOk;
  }

 private:
  static nlohmann::ordered_json json(const std::vector<Listed>& all) {
    auto list = nlohmann::ordered_json::array();
    for (const Listed& one : all)
      list.push_back({{"name", one.model.name},
                      {"path", one.model.path},
                      {"bytes", one.model.bytes},
                      {"type", one.type},
                      {"architecture", one.architecture},
                      {"complete", !one.model.path.empty()}});
    return list;
  }

  std::string output_;
};

class Remove final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Hub");
    flags.positionals("NAME", "models of the cache, exactly as dllm list names them", kAny, names_);
  }

  Expected<ExitCode> run(const Flags&, Session& session) override {
    if (names_.empty())
      return Error{ErrorCode::kUsage, "no model is named", "dllm rm", "dllm list names those of the cache"};
    DLLM_TRY(const std::string cache, cache_folder());
    for (const std::string& name : names_) {
      DLLM_TRY(const hub::Removed removed, hub::remove_model(cache, name));
      session.terminal.out << fmt::format("{}: {} freed ({} bytes)\n", name,
                                          human_bytes(static_cast<double>(removed.bytes)), removed.bytes);
    }
    return kExitOk;
  }

 private:
  static constexpr std::size_t kAny = 1000;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<Verb> make_list() { return std::make_unique<List>(); }
std::unique_ptr<Verb> make_remove() { return std::make_unique<Remove>(); }

}  // namespace dllm::app

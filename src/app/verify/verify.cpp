// dllm verify: what a model file is and does, for comparison with other machines and with the published checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/model_listing.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/verify/report.h"
#include "base/json_reader.h"
#include "base/try.h"
#include "eval/verify_texts.h"
#include "format/gguf.h"
#include "hub/checksum.h"

namespace dllm::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int32_t kVerifyTokens = 32;

/// The files that make the model: parts of a GGUF file, or what a folder has of weights, configuration and vocabulary.
std::vector<std::string> files_of(const std::string& path) {
  if (path.empty()) return {};
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return gguf_parts(path);
  std::vector<std::string> files;
  for (const auto& one : fs::directory_iterator(path, ignored))
    for (const char* end : {".safetensors", ".json", ".txt", ".jinja"})
      if (one.path().extension() == end) files.push_back(one.path().string());
  std::ranges::sort(files);
  return files;
}

Expected<std::string> ids_digest(const std::vector<std::vector<std::int32_t>>& ids) {
  return hub::text_digest(Json(ids).dump());
}

class Verify final : public Verb {
 public:
  void declare(Flags& flags) override {
    model_.add_template(flags);
    add_generate_flags(flags, options_);
    model_.add_loading(flags);
    flags.group("Output");
    flags.add({.names = {"--texts"},
               .help = "print the texts whose ids are compared, as a JSON array, and stop",
               .apply = into(texts_)});
    flags.add({.names = {"--no-digests"},
               .help = "leave out the digests of files, which take seconds for gigabytes",
               .apply = into(no_digests_)});
    flags.add({.names = {"--against"},
               .value = "FILE",
               .help = "compare with a report of another run or machine; exit code 5 if they differ",
               .takes_path = true,
               .apply = into(against_)});
    flags.add({.names = {"--json"},
               .value = "FILE",
               .help = "write the report as JSON, too; - is standard output",
               .takes_path = true,
               .written = true,
               .apply = into(json_)});
  }

  Expected<ExitCode> run(const Flags&, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.listed(terminal)) return kExitOk;
    if (texts_) {
      terminal.out << dump(Json(verify_texts()), -1) << "\n";
      return kExitOk;
    }
    Json other;
    if (!against_.empty()) {
      DLLM_TRY(const std::string text, read_text(against_, terminal));
      DLLM_TRY(other, read_json<Json>(text, {.code = ErrorCode::kInvalidFile, .root = against_}));
    }
    if (!options_.max_tokens && !options_.length) options_.max_tokens = kVerifyTokens;
    DLLM_TRY(const LanguageModel model, model_.open(session));
    DLLM_TRY(const Json report, examine(model, session));
    if (json_ != "-") terminal.out << verify_text(report);
    terminal.err << "logits beside transformers': python3 -m dllm.verify -m MODEL\n";
    if (!json_.empty()) DLLM_CHECK_OK(write_result(session, json_, dump(report) + "\n"));
    if (against_.empty()) return kExitOk;
    auto found = verify_differences(report, other);
    if (!found) return Error{found.error().code, found.error().what, against_, found.error().hint};
    for (const std::string& one : *found) terminal.err << "differs: " << one << "\n";
    if (found->empty()) terminal.err << "equal to " << against_ << "\n";
    return found->empty() ? kExitOk : kExitMismatch;
  }

 private:
  Expected<Json> examine(const LanguageModel& model, Session& session) {
    Json report;
    report["name"] = model.name().empty() ? fs::path(model_.path).filename().string() : model.name();
    DLLM_TRY(report["files"], files(session));
    DLLM_TRY(report["model"], facts(model));
    DLLM_TRY(report["texts"], texts(model));
    DLLM_TRY(const auto chat,
             model.apply_template({{"user", verify_prompts().front()}, {"assistant", "42"}, {"user", "Why?"}}));
    DLLM_TRY(std::string digest, ids_digest({chat}));
    report["chat"] = {{"tokens", chat.size()}, {"sha256", std::move(digest)}};
    DLLM_CHECK_OK(answer(model, session, report));
    DLLM_TRY(const ResolvedOptions resolved, model.resolve(options_));
    report["config"] = run_config(model, model_, resolved, session.command);
    return report;
  }

  Expected<Json> files(Session& session) const {
    Json list = Json::array();
    ProgressLine bar(session.terminal);
    for (const std::string& path : files_of(model_.path)) {
      std::error_code failure;
      const std::uint64_t size = fs::file_size(path, failure);
      if (failure) return Error{ErrorCode::kIo, "cannot be examined", path, ""};
      Json entry = {{"name", fs::path(path).filename().string()}, {"bytes", size}, {"sha256", nullptr}};
      if (!no_digests_) {
        session.interrupt.arm();
        const auto digest = hub::file_digest(path, hub::DigestKind::kSha256, [&](std::uint64_t done) {
          bar.show(size > 0 ? static_cast<double>(done) / static_cast<double>(size) : 1,
                   "digest of " + entry["name"].get<std::string>());
          return !session.interrupt.requested();
        });
        session.interrupt.disarm();
        if (!digest) return digest.error();
        entry["sha256"] = *digest;
      }
      list.push_back(std::move(entry));
    }
    return list;
  }

  /// What decides how texts become ids and positions are decoded; of the weights, their type and number.
  Expected<Json> facts(const LanguageModel& model) const {
    const ModelSize size = model.size();
    const SpecialTokens special = model.special_tokens();
    const auto id = [](const std::optional<std::int32_t>& token) { return token ? Json(*token) : Json(); };
    DLLM_TRY(const ModelListing listing, list_model(model_.path));
    const Json listed = listing_json(listing, {.tensors = false, .full_arrays = true});
    DLLM_TRY(std::string digest, hub::text_digest(dump(listed["metadata"], -1)));
    return Json{{"architecture", model.architecture()},
                {"parameters", size.parameters},
                {"bytes", size.bytes},
                {"type", size.type},
                {"vocabulary", model.vocab_size()},
                {"context", model.context_length()},
                {"shift", model.logit_shift()},
                {"mask", id(special.mask)},
                {"bos", id(special.bos)},
                {"eos", id(special.eos)},
                {"adds_bos", special.add_bos},
                {"metadata_sha256", std::move(digest)}};
  }

  static Expected<Json> texts(const LanguageModel& model) {
    std::vector<std::vector<std::int32_t>> ids;
    for (const std::string& text : verify_texts()) {
      DLLM_TRY(auto one, model.tokenize(text, /*special=*/false));
      ids.push_back(std::move(one));
    }
    DLLM_TRY(std::string digest, ids_digest(ids));
    return Json{{"count", ids.size()}, {"sha256", std::move(digest)}};
  }

  /// Answers the prompts, and adds what they took.
  Expected<void> answer(const LanguageModel& model, Session& session, Json& report) const {
    Json list = Json::array();
    double seconds = 0;
    std::int64_t tokens = 0, passes = 0;
    ProgressLine bar(session.terminal);
    const std::stop_token stop = session.interrupt.arm();
    const std::vector<std::string> prompts = verify_prompts();
    for (const std::string& prompt : prompts) {
      bar.show(static_cast<double>(list.size()) / static_cast<double>(prompts.size()), prompt);
      auto found = model.generate(std::string_view(prompt), options_, {}, stop);
      if (!found || found->finish == FinishReason::kCancelled) session.interrupt.disarm();
      if (!found) return std::move(found).error();
      if (found->finish == FinishReason::kCancelled)
        return Error{ErrorCode::kCancelled, "the run was stopped", "dllm verify", ""};
      const GenerateStats& stats = found->stats;
      seconds += stats.seconds;
      tokens += stats.answer_tokens;
      passes += stats.nfe;
      list.push_back({{"prompt", prompt},
                      {"prompt_tokens", stats.prompt_tokens},
                      {"tokens", stats.answer_tokens},
                      {"passes", stats.nfe},
                      {"hash", hash_text(found->hash)},
                      {"ids", found->ids},
                      {"text", found->text}});
    }
    session.interrupt.disarm();
    report["prompts"] = std::move(list);
    report["speed"] = {{"tokens_per_second", seconds > 0 ? static_cast<double>(tokens) / seconds : 0},
                       {"ms_per_pass", passes > 0 ? seconds * 1e3 / static_cast<double>(passes) : 0}};
    return {};
  }

  bool texts_ = false, no_digests_ = false;
  std::string json_, against_;
  ModelFlags model_;
  GenerateOptions options_;
};

}  // namespace

std::unique_ptr<Verb> make_verify() { return std::make_unique<Verify>(); }

}  // namespace dllm::app

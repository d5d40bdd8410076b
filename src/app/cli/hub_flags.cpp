#include "app/cli/hub_flags.h"

#include <fmt/format.h>

#include <chrono>
#include <ostream>

#include "app/cli/fit.h"
#include "app/cli/verb.h"
#include "base/human_bytes.h"
#include "base/try.h"

namespace dllm::app {
namespace {

using Clock = std::chrono::steady_clock;

/// "model.gguf · 1.20 of 4.90 GB · 35.1 MB/s · 1:45 left"
std::string transfer_text(const hub::PullProgress& progress, double seconds) {
  std::string text(progress.file.empty() ? "asking the hub" : progress.file);
  if (progress.phase == hub::PullPhase::kCheck) return text + " · checking";
  if (progress.total == 0) return text;
  text += fmt::format(" · {} of {}", human_bytes(static_cast<double>(progress.done)),
                      human_bytes(static_cast<double>(progress.total)));
  const double rate = seconds > 0.5 ? static_cast<double>(progress.fetched) / seconds : 0;
  if (rate <= 0) return text;
  const auto left = static_cast<long>(static_cast<double>(progress.total - progress.done) / rate);
  return text + fmt::format(" · {}/s · {}:{:02} left", human_bytes(rate), left / 60, left % 60);
}

}  // namespace

void HubFlags::add_name(Flags& flags) {
  flags.add({.names = {"--hf-repo", "-hf", "-hfr"},
             .value = "ORG/MODEL[:TYPE]",
             .help = "model from a hub, kept in Hugging Face's cache; TYPE chooses a GGUF file, as in :Q4_K_M",
             .apply = into(name)});
}

void HubFlags::add(Flags& flags) {
  flags.add({.names = {"--hf-file", "-hff"},
             .value = "PATH",
             .help = "this file of the repository",
             .apply = into(file),
             .rare = true});
  flags.add({.names = {"--hf-token", "-hft"},
             .value = "TEXT",
             .help = "access token",
             .default_text = "HF_TOKEN, or the file that huggingface-cli login writes",
             .apply = into(token),
             .rare = true});
  flags.add({.names = {"--revision"},
             .value = "NAME",
             .help = "branch, tag or commit of the repository",
             .default_text = revision,
             .apply = into(revision),
             .rare = true});
  flags.add({.names = {"--offline"},
             .help = "use only the cache, without network access",
             .apply = into(offline),
             .rare = true});
}

Expected<hub::Pulled> HubFlags::pull(Session& session) const {
  hub::PullRequest request;
  DLLM_TRY(request.name, hub::parse_model_name(name));
  request.file = file;
  request.revision = revision;
  DLLM_TRY(hub::Config config, hub::config_from(hub::process_environment));
  if (!token.empty()) config.token = token;
  config.offline = config.offline || offline;

  ProgressLine line(session.terminal);
  hub::PullListener listener;
  listener.log = Log([&](LogLevel, const std::string& text) {
    line.clear();
    session.terminal.err << "warning: " << sanitize(text) << "\n";
  });
  listener.begin = [&](const std::string& path, std::uint64_t total, std::uint64_t) {
    line.clear();
    constexpr std::uint64_t kWorthMeasuring = 100'000'000;
    const FitFacts facts = fit_facts(path, static_cast<std::int64_t>(total), total > kWorthMeasuring);
    session.terminal.err << sanitize(path) << ": " << fit_text(facts) << "\n";
  };
  const auto start = Clock::now();
  listener.progress = [&](const hub::PullProgress& progress) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const double share =
        progress.total > 0 ? static_cast<double>(progress.done) / static_cast<double>(progress.total) : 0;
    line.show(share, transfer_text(progress, seconds));
    return !session.interrupt.requested();
  };
  session.interrupt.arm();
  auto pulled = hub::pull(config, request, listener);
  session.interrupt.disarm();
  return pulled;
}

}  // namespace dllm::app

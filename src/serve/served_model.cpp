#include "serve/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <new>
#include <utility>

#include "base/try.h"

namespace dllm::serve {

Expected<std::unique_ptr<ServedModel>> ServedModel::create(std::shared_ptr<const LanguageModel> loaded,
                                                           const ServerOptions& settings,
                                                           std::vector<std::string> names, std::string path,
                                                           Events events) {
  SchedulerOptions scheduling = settings.scheduling;
  scheduling.on_ranks = events.ranks;
  DLLM_TRY(auto scheduler, Scheduler::create(*loaded, scheduling));
  return std::unique_ptr<ServedModel>(new ServedModel(std::move(loaded), std::move(scheduler), settings,
                                                      std::move(names), std::move(path), std::move(events)));
}

ServedModel::ServedModel(std::shared_ptr<const LanguageModel> loaded, std::unique_ptr<Scheduler> requests,
                         const ServerOptions& settings, std::vector<std::string> names, std::string path, Events events)
    : loaded_(std::move(loaded)),
      scheduler_(std::move(requests)),
      model(*loaded_),
      scheduler(*scheduler_),
      options(settings),
      names_(std::move(names)),
      path_(std::move(path)),
      events_(std::move(events)) {
  if (names_.empty()) names_.push_back(model.name().empty() ? model.architecture() : model.name());
  for (std::int32_t id = 0; id < model.vocab_size(); ++id) {
    const auto bytes = model.detokenize({id}, /*special=*/true);
    if (!bytes) continue;
    longest_token_ = std::max(longest_token_, bytes->size());
    if (const auto text = model.detokenize({id}, /*special=*/false); text && text->empty() && !bytes->empty())
      control_tokens_.push_back(id);
  }
  facts_ = template_facts(model, /*tools=*/false);
  tool_facts_ = template_facts(model, /*tools=*/true);
  created_ = static_cast<std::int64_t>(std::time(nullptr));
}

ServedModel::~ServedModel() {
  stop();
  if (events_.ended) events_.ended(scheduler.counters());
  // Cancelled requests read the other members.
  scheduler_.reset();
}

void ServedModel::start() {
  watch_ = std::make_unique<FileWatch>(ModelFiles(model), events_.after_loss, events_.file, events_.lost);
  rounds_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void ServedModel::run(const std::stop_token& stop) {
  try {
    scheduler.run(stop);
    const auto device = model.device_status();
    if (device && !device->failure.empty() && events_.device_lost) events_.device_lost(device->failure);
  } catch (const std::bad_alloc&) {
    events_.out_of_memory();
  }
}

std::optional<ApiError> ServedModel::unfit() const {
  if (const auto device = model.device_status(); device && !device->failure.empty())
    return ApiError{503, device->failure + ": " + events_.after_loss, "", ""};
  if (const auto ranks = scheduler.ranks(); ranks && ranks->ranks == 0)
    return ApiError{503, ranks->failure + ": the other ranks are looked for", "", "no_ranks"};
  return watch_ ? watch_->unfit() : std::nullopt;
}

void ServedModel::stop() {
  rounds_.request_stop();
  if (rounds_.joinable()) rounds_.join();
  watch_.reset();
}

bool ServedModel::is_served(std::string_view asked) const {
  return options.any_model || asked == kDefaultName || asked == model.name() || std::ranges::count(names_, asked) > 0;
}

Expected<void> ServedModel::check_size(std::size_t bytes, std::string_view field) const {
  // Templates may leave messages out, and JSON is longer than what it says; so much takes no time.
  constexpr std::size_t kAlways = std::size_t{64} << 10;
  const auto most = std::max(kAlways, static_cast<std::size_t>(model.context_length()) * longest_token_);
  if (bytes <= most) return {};
  return Error{ErrorCode::kUsage,
               fmt::format("{} bytes of text exceed the context of {} tokens", bytes, model.context_length()),
               std::string(field), "shorten it"};
}

std::int64_t ServedModel::capacity() const {
  return static_cast<std::int64_t>(scheduler.options().parallel) * model.context_length();
}

/// An estimate for Retry-After: assumes that running and waiting requests take as long as finished ones did.
int ServedModel::retry_seconds() const {
  if (const auto ranks = scheduler.ranks(); ranks && ranks->ranks == 0) return ranks->retry_s;
  const SchedulerCounters c = scheduler.counters();
  const std::uint64_t done = c.finished + c.cancelled;
  if (done == 0) return 1;
  const double each = c.round_seconds / static_cast<double>(done);
  return std::clamp(static_cast<int>(each * (c.waiting + 1)), 1, 60);
}

ModelEntry ServedModel::entry(std::string name) const {
  const ModelSize size = model.size();
  return {.name = std::move(name),
          .path = path_,
          .bytes = size.bytes,
          .modified = created_,
          .architecture = model.architecture(),
          .type = size.type,
          .chat_template = model.chat_template(),
          .context_length = model.context_length(),
          .vocabulary = model.vocab_size(),
          .parameters = size.parameters};
}

std::string ServedModel::file_name() const { return std::filesystem::path(path_).filename().string(); }

}  // namespace dllm::serve

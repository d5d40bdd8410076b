// Which model answers a request, where the server has several, and what these have counted.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/percent.h"
#include "base/try.h"
#include "serve/api.h"
#include "serve/ollama.h"

namespace dllm::serve {
namespace {

/// The model that the request names: in its body, or as ?model=NAME; empty: none.
Expected<std::string> asked_model(Call& call) {
  const HttpRequest& request = call.exchange->request();
  if (request.method == "POST") {
    Fields fields(call.body);
    DLLM_TRY(const auto name, fields.text("model"));
    if (call.dialect == Dialect::kOllama && name.value_or("").empty()) return wrong_type("model", "given");
    return name.value_or("");
  }
  constexpr std::string_view kKey = "model=";
  for (std::string_view rest = request.query; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    if (part.starts_with(kKey)) return percent_decoded(part.substr(kKey.size())).value_or(std::string(part));
  }
  return std::string();
}

ApiError load_error(const std::string& name, const Error& error) {
  if (error.where == kQueueFull || error.code == ErrorCode::kCancelled) {
    ApiError told = api_error(error);
    told.message = error.what;
    return told;
  }
  // The place is a path of this machine.
  return {error.code == ErrorCode::kResource ? 503 : 500,
          fmt::format("the model '{}' cannot be loaded: {}", name, error.what), "", "model_not_loaded"};
}

void add(SchedulerCounters& sum, const SchedulerCounters& one) {
  for (const auto count :
       {&SchedulerCounters::submitted, &SchedulerCounters::refused, &SchedulerCounters::finished,
        &SchedulerCounters::cancelled, &SchedulerCounters::failed, &SchedulerCounters::rounds,
        &SchedulerCounters::prompt_tokens, &SchedulerCounters::answer_tokens, &SchedulerCounters::committed_tokens,
        &SchedulerCounters::nfe, &SchedulerCounters::rows, &SchedulerCounters::prefix_hits,
        &SchedulerCounters::prefix_misses, &SchedulerCounters::cached_tokens, &SchedulerCounters::evicted_tokens})
    sum.*count += one.*count;
  sum.round_seconds += one.round_seconds;
  sum.running += one.running;
  sum.waiting += one.waiting;
  sum.positions += one.positions;
  sum.prefix_bytes += one.prefix_bytes;
  sum.prefix_tokens += one.prefix_tokens;
}

/// Of a model that is not loaded: what has been counted, and no requests and memory of now.
SchedulerCounters without_gauges(SchedulerCounters counters) {
  counters.running = counters.waiting = 0;
  counters.positions = counters.prefix_bytes = counters.prefix_tokens = 0;
  return counters;
}

}  // namespace

void Api::bind(const CallPtr& call, std::function<void()> then) {
  if (only != nullptr || call->by != Answers::kModel) return then();
  run(call, [&] { return bind_or_wait(call, std::move(then)); });
}

std::optional<ModelEntry> Api::find_model(const std::string& name) const {
  if (auto entry = source->find(name == kDefaultName ? "" : name)) return entry;
  return source->find(without_latest(name));
}

std::vector<std::string> Api::model_names() const {
  std::vector<std::string> names;
  for (const ModelEntry& one : source->list()) names.push_back(one.name);
  return names;
}

Expected<void> Api::bind_or_wait(const CallPtr& call, std::function<void()> then) {
  DLLM_TRY(const std::string asked, asked_model(*call));
  const auto entry = find_model(asked);
  if (!entry) return unknown_model(asked.empty() ? std::string(kDefaultName) : asked, model_names());
  DLLM_TRY(const std::optional<double> keep, read_keep_alive(*call));
  if (keep == 0 && is_without_words(*call)) {
    pool->unload(entry->name);
    reply_unloaded(call);
    return {};
  }
  pool->acquire(*entry, keep,
                {.over = [call] { return call->is_over(); },
                 .then =
                     [this, call, name = entry->name, go_on = std::move(then)](Expected<ModelPool::Lease> lease) {
                       if (!lease) return call->fail(load_error(name, lease.error()), lease.error().message());
                       take(call, *std::move(lease), go_on);
                     }});
  return {};
}

void Api::take(const CallPtr& call, ModelPool::Lease lease, const std::function<void()>& then) {
  call->bound = served_by(lease);
  call->lease = std::move(lease.busy);
  if (const auto error = call->served().unfit()) return call->fail(*error);
  if (!seated(*call)) return call->fail(no_seat());
  then();
}

std::vector<ModelPool::Status> Api::models() const {
  std::vector<ModelPool::Status> all, loaded = pool->states();
  for (const ModelEntry& entry : source->list()) {
    const auto found = std::ranges::find(loaded, entry.name, [](const auto& one) { return one.entry.name; });
    if (found == loaded.end()) {
      all.push_back({.entry = entry});
    } else {
      all.push_back(std::move(*found));
      loaded.erase(found);
    }
  }
  // Those whose files are not there any more.
  for (ModelPool::Status& one : loaded) all.push_back(std::move(one));
  return all;
}

SchedulerCounters Api::counters() {
  if (only != nullptr) return only->scheduler.counters();
  SchedulerCounters sum;
  for (const ModelPool::Status& one : pool->states())
    if (const ServedModel* served = served_by(one.lease)) add(sum, served->scheduler.counters());
  return sum;
}

void Api::add_past(const std::string& name, const SchedulerCounters& counters) {
  const std::lock_guard lock(past_mutex_);
  add(past_[name].sum, without_gauges(counters));
  past_[name].shown.reset();
}

/// Of every model that was loaded since the start. What it has counted never decreases while it is unloaded.
std::vector<Metrics::OfModel> Api::counted_by_model(std::size_t& loaded) {
  std::vector<Metrics::OfModel> all;
  const std::vector<ModelPool::Status> states = pool->states();
  const std::lock_guard lock(past_mutex_);
  for (const ModelPool::Status& one : states) {
    Past& past = past_[one.entry.name];
    const ServedModel* const served = served_by(one.lease);
    if (served == nullptr) continue;
    ++loaded;
    past.shown = past.sum;
    add(*past.shown, served->scheduler.counters());
  }
  for (const auto& [name, past] : past_) {
    const auto state = std::ranges::find(states, name, [](const auto& one) { return one.entry.name; });
    const ServedModel* const served = state != states.end() ? served_by(state->lease) : nullptr;
    Metrics::OfModel one{.name = name, .counters = past.shown.value_or(past.sum)};
    if (served != nullptr) {
      one.capacity = served->capacity();
      one.device = served->model.device_status();
      one.ranks = served->scheduler.ranks();
    } else {
      one.counters = without_gauges(one.counters);
    }
    all.push_back(std::move(one));
  }
  return all;
}

std::string Api::metrics_text() {
  Metrics::Elsewhere elsewhere{connections ? connections() : 0, lost_log_lines()};
  if (only != nullptr)
    return metrics.text(
        {{"", only->scheduler.counters(), only->capacity(), only->model.device_status(), only->scheduler.ranks()}},
        elsewhere);
  elsewhere.loaded = 0;
  const auto models = counted_by_model(*elsewhere.loaded);
  return metrics.text(models, elsewhere);
}

}  // namespace dllm::serve

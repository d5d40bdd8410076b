#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace dllm::serve {
namespace {

using Of = Metrics::OfModel;

void head(std::string& out, const char* name, const char* type, const char* help) {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

/// `text` as the value of a label.
std::string label_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c != '\n') result += c;
  }
  return result;
}

std::string labels(const std::string& model) {
  return model.empty() ? "" : fmt::format("{{model=\"{}\"}}", label_text(model));
}

double counted_as(std::uint64_t count) { return static_cast<double>(count); }

/// Values of the models' metrics, one line a model.
class ModelValues {
 public:
  ModelValues(std::string& out, const std::vector<Of>& models) : out_(out), models_(models) {}

  void gauge(const char* name, const char* help, const std::function<double(const Of&)>& number) {
    add(name, "gauge", help, number);
  }
  void counter(const char* name, const char* help, std::uint64_t SchedulerCounters::* count) {
    add(name, "counter", help, [count](const Of& one) { return counted_as(one.counters.*count); });
  }
  void add(const char* name, const char* type, const char* help, const std::function<double(const Of&)>& number) {
    head(out_, name, type, help);
    for (const Of& one : models_) out_ += fmt::format("{}{} {}\n", name, labels(one.name), number(one));
  }

 private:
  std::string& out_;
  const std::vector<Of>& models_;
};

void single(std::string& out, const char* name, const char* type, const char* help, double number) {
  head(out, name, type, help);
  out += fmt::format("{} {}\n", name, number);
}

void print_requests(ModelValues& values) {
  using C = SchedulerCounters;
  values.counter("dllm_requests_submitted_total", "Generations that got a place in the queue.", &C::submitted);
  values.counter("dllm_requests_refused_total", "Generations for which the queue had no place.", &C::refused);
  values.counter("dllm_requests_finished_total", "Generations that gave an answer.", &C::finished);
  values.counter("dllm_requests_cancelled_total", "Generations ended by their client or by time.", &C::cancelled);
  values.counter("dllm_requests_failed_total", "Generations ended by an error.", &C::failed);
  values.counter("dllm_prompt_tokens_total", "Tokens of prompts.", &C::prompt_tokens);
  values.counter("dllm_generation_tokens_total", "Tokens of answers, up to their ends.", &C::answer_tokens);
  values.counter("dllm_committed_tokens_total", "Positions decided, including those after an answer's end.",
                 &C::committed_tokens);
  values.counter("dllm_nfe_total", "Forward passes, counted per request.", &C::nfe);
  values.counter("dllm_rounds_total", "Forward passes of the model, each of several requests.", &C::rounds);
  values.counter("dllm_rows_total", "Rows forwarded.", &C::rows);
  values.add("dllm_round_seconds_total", "counter", "Time in forward passes.",
             [](const Of& one) { return one.counters.round_seconds; });
  values.counter("dllm_prefix_cache_hits_total", "Requests whose prompts began with kept tokens.", &C::prefix_hits);
  values.counter("dllm_prefix_cache_misses_total", "Requests that looked for kept tokens and found none.",
                 &C::prefix_misses);
  values.counter("dllm_prefix_cache_tokens_total", "Tokens of prompts that were not computed again.",
                 &C::cached_tokens);
  values.counter("dllm_prefix_cache_evicted_tokens_total", "Kept tokens that had to make room for others.",
                 &C::evicted_tokens);
}

/// Devices with memory of their own; without one, these names do not appear.
void print_devices(std::string& out, const std::vector<Of>& models) {
  std::vector<Of> with;
  for (const Of& one : models)
    if (one.device) with.push_back(one);
  if (with.empty()) return;
  ModelValues values(out, with);
  values.gauge("dllm_device_memory_used_bytes", "Memory of the device that the program has allocated.",
               [](const Of& one) { return static_cast<double>(one.device->memory_used); });
  values.gauge("dllm_device_memory_bytes", "All memory of the device.",
               [](const Of& one) { return static_cast<double>(one.device->memory_total); });
  values.add("dllm_device_passes_total", "counter", "Forward passes on the device.",
             [](const Of& one) { return counted_as(one.device->passes); });
  values.add("dllm_device_pass_seconds_total", "counter", "From the submission of passes to their ends on the device.",
             [](const Of& one) { return one.device->pass_seconds; });
}

/// Models on several ranks; without one, these names do not appear.
void print_ranks(std::string& out, const std::vector<Of>& models) {
  std::vector<Of> with;
  for (const Of& one : models)
    if (one.ranks) with.push_back(one);
  if (with.empty()) return;
  ModelValues values(out, with);
  values.gauge("dllm_ranks", "Ranks that compute; 0: a rank is lost, and the others are looked for.",
               [](const Of& one) { return one.ranks->ranks; });
  values.gauge("dllm_ranks_wanted", "Ranks that the server was started with.",
               [](const Of& one) { return one.ranks->wanted; });
  values.add("dllm_rank_losses_total", "counter", "Times that a rank was lost.",
             [](const Of& one) { return counted_as(one.ranks->lost); });
}

}  // namespace

void Metrics::Histogram::add(double seconds) {
  const auto at = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  ++counts[static_cast<std::size_t>(at)];
  sum += seconds;
}

void Metrics::Histogram::print(std::string& out, const char* name, const std::string& model) const {
  const std::string label = model.empty() ? "" : fmt::format("model=\"{}\",", label_text(model));
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    out += fmt::format("{}_bucket{{{}le=\"{}\"}} {}\n", name, label, bound, below);
  }
  out += fmt::format("{0}_sum{3} {1}\n{0}_count{3} {2}\n", name, sum, below, labels(model));
}

void Metrics::answered(const std::string& path, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
  request_.add(seconds);
}

void Metrics::generated(const std::string& model, const Generation& generation, double first_text_seconds) {
  const std::lock_guard lock(mutex_);
  Times& times = generations_[model];
  times.first_text.add(first_text_seconds);
  if (generation.stats.steps > 0) times.step.add(generation.stats.seconds / generation.stats.steps);
}

void Metrics::counted(const std::string& model, const std::string& event) {
  const std::lock_guard lock(mutex_);
  ++events_[{event, model}];
}

std::string Metrics::text(const std::vector<OfModel>& models, const Elsewhere& elsewhere) const {
  std::string out;
  ModelValues values(out, models);
  values.gauge("dllm_num_requests_running", "Requests in the next forward pass.",
               [](const Of& one) { return one.counters.running; });
  values.gauge("dllm_num_requests_waiting", "Requests that wait for a place.",
               [](const Of& one) { return one.counters.waiting; });
  values.gauge("dllm_kv_cache_usage_perc", "K/V positions held by running requests, of those that fit (0 to 1).",
               [](const Of& one) {
                 return static_cast<double>(one.counters.positions) /
                        static_cast<double>(std::max<std::int64_t>(one.capacity, 1));
               });
  values.gauge("dllm_kv_cache_positions", "K/V positions held by running requests.",
               [](const Of& one) { return static_cast<double>(one.counters.positions); });
  single(out, "dllm_connections", "gauge", "Open connections.", static_cast<double>(elsewhere.connections));
  print_requests(values);
  single(out, "dllm_log_lines_lost_total", "counter", "Lines of the log that nobody read in time.",
         counted_as(elsewhere.lost_log_lines));
  values.gauge("dllm_prefix_cache_bytes", "Memory of kept K/V.",
               [](const Of& one) { return static_cast<double>(one.counters.prefix_bytes); });
  values.gauge("dllm_tokens_per_forward", "Positions decided per forward pass of a request, since the start.",
               [](const Of& one) {
                 return one.counters.nfe > 0 ? counted_as(one.counters.committed_tokens) / counted_as(one.counters.nfe)
                                             : 0;
               });
  print_devices(out, models);
  print_ranks(out, models);
  const std::lock_guard lock(mutex_);
  if (elsewhere.loaded) {
    single(out, "dllm_models_loaded", "gauge", "Models in memory.", static_cast<double>(*elsewhere.loaded));
    head(out, "dllm_model_events_total", "counter", "Models that were loaded, unloaded, and could not be loaded.");
    for (const auto& [key, count] : events_)
      out += fmt::format("dllm_model_events_total{{event=\"{}\",model=\"{}\"}} {}\n", key.first, label_text(key.second),
                         count);
  }
  head(out, "dllm_http_requests_total", "counter", "Requests answered.");
  for (const auto& [key, count] : requests_)
    out += fmt::format("dllm_http_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  head(out, "dllm_request_seconds", "histogram", "From a request to the end of its answer.");
  request_.print(out, "dllm_request_seconds", "");
  const auto times = [this](const Of& one) {
    const auto found = generations_.find(one.name);
    return found == generations_.end() ? Times() : found->second;
  };
  head(out, "dllm_time_to_first_text_seconds", "histogram", "From submission to the first text that is final.");
  for (const Of& one : models) times(one).first_text.print(out, "dllm_time_to_first_text_seconds", one.name);
  head(out, "dllm_step_seconds", "histogram", "Mean time of a generation's steps, its share of shared passes.");
  for (const Of& one : models) times(one).step.print(out, "dllm_step_seconds", one.name);
  return out;
}

}  // namespace dllm::serve

#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace dllm::serve {
namespace {

void value(std::string& out, const char* name, const char* type, const char* help, double number) {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, number);
}

double counted(std::uint64_t count) { return static_cast<double>(count); }

}  // namespace

void Metrics::Histogram::add(double seconds) {
  const auto at = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  ++counts[static_cast<std::size_t>(at)];
  sum += seconds;
}

void Metrics::Histogram::print(std::string& out, const char* name, const char* help) const {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, below);
  }
  out += fmt::format("{0}_sum {1}\n{0}_count {2}\n", name, sum, below);
}

void Metrics::answered(const std::string& path, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
  request_.add(seconds);
}

void Metrics::generated(const Generation& generation, double first_text_seconds) {
  const std::lock_guard lock(mutex_);
  first_text_.add(first_text_seconds);
  if (generation.stats.steps > 0) step_.add(generation.stats.seconds / generation.stats.steps);
}

std::string Metrics::text(const SchedulerCounters& c, const Elsewhere& elsewhere) const {
  std::string out;
  const auto gauge = [&](const char* name, const char* help, double number) {
    value(out, name, "gauge", help, number);
  };
  const auto counter = [&](const char* name, const char* help, std::uint64_t number) {
    value(out, name, "counter", help, counted(number));
  };
  gauge("dllm_num_requests_running", "Requests in the next forward pass.", c.running);
  gauge("dllm_num_requests_waiting", "Requests that wait for a place.", c.waiting);
  gauge("dllm_kv_cache_usage_perc", "K/V positions held by running requests, of those that fit (0 to 1).",
        static_cast<double>(c.positions) / static_cast<double>(std::max<std::int64_t>(elsewhere.capacity, 1)));
  gauge("dllm_kv_cache_positions", "K/V positions held by running requests.", static_cast<double>(c.positions));
  gauge("dllm_connections", "Open connections.", static_cast<double>(elsewhere.connections));
  counter("dllm_requests_submitted_total", "Generations that got a place in the queue.", c.submitted);
  counter("dllm_requests_refused_total", "Generations for which the queue had no place.", c.refused);
  counter("dllm_requests_finished_total", "Generations that gave an answer.", c.finished);
  counter("dllm_requests_cancelled_total", "Generations ended by their client or by time.", c.cancelled);
  counter("dllm_requests_failed_total", "Generations ended by an error.", c.failed);
  counter("dllm_prompt_tokens_total", "Tokens of prompts.", c.prompt_tokens);
  counter("dllm_generation_tokens_total", "Tokens of answers, up to their ends.", c.answer_tokens);
  counter("dllm_committed_tokens_total", "Positions decided, including those after an answer's end.",
          c.committed_tokens);
  counter("dllm_nfe_total", "Forward passes, counted per request.", c.nfe);
  counter("dllm_rounds_total", "Forward passes of the model, each of several requests.", c.rounds);
  counter("dllm_rows_total", "Rows forwarded.", c.rows);
  value(out, "dllm_round_seconds_total", "counter", "Time in forward passes.", c.round_seconds);
  counter("dllm_prefix_cache_hits_total", "Requests whose prompts began with kept tokens.", c.prefix_hits);
  counter("dllm_prefix_cache_misses_total", "Requests that looked for kept tokens and found none.", c.prefix_misses);
  counter("dllm_prefix_cache_tokens_total", "Tokens of prompts that were not computed again.", c.cached_tokens);
  counter("dllm_prefix_cache_evicted_tokens_total", "Kept tokens that had to make room for others.", c.evicted_tokens);
  counter("dllm_log_lines_lost_total", "Lines of the log that nobody read in time.", elsewhere.lost_log_lines);
  gauge("dllm_prefix_cache_bytes", "Memory of kept K/V.", static_cast<double>(c.prefix_bytes));
  gauge("dllm_tokens_per_forward", "Positions decided per forward pass of a request, since the start.",
        c.nfe > 0 ? counted(c.committed_tokens) / counted(c.nfe) : 0);
  const std::lock_guard lock(mutex_);
  out += "# HELP dllm_http_requests_total Requests answered.\n# TYPE dllm_http_requests_total counter\n";
  for (const auto& [key, count] : requests_)
    out += fmt::format("dllm_http_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  request_.print(out, "dllm_request_seconds", "From a request to the end of its answer.");
  first_text_.print(out, "dllm_time_to_first_text_seconds", "From submission to the first text that is final.");
  step_.print(out, "dllm_step_seconds", "Mean time of a generation's steps, its share of shared passes.");
  return out;
}

}  // namespace dllm::serve

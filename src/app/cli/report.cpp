#include "app/cli/report.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/host.h"
#include "base/os_process.h"
#include "base/virtual_parts.h"
#include "dllm/version.h"
#include "engine/trace.h"

namespace dllm::app {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/// Three digits: "35.2 J", "296 us". Tiny models on large devices take microseconds.
std::string measured(double value, std::string_view unit) {
  static constexpr std::array<std::pair<double, std::string_view>, 3> kPrefixes = {{{1, ""}, {1e-3, "m"}, {1e-6, "u"}}};
  auto prefix = kPrefixes.begin();
  while (value > 0 && value < prefix->first && std::next(prefix) != kPrefixes.end()) ++prefix;
  const double scaled = value / prefix->first;
  const int digits = scaled < 10 ? 2 : scaled < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}{}", scaled, digits, prefix->second, unit);
}

}  // namespace

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::string stats_line(const Generation& generation, std::string_view arithmetic) {
  const GenerateStats& stats = generation.stats;
  return fmt::format(
      "answer {} tokens, {:.1f} tok/s · canvas {} tokens, {:.1f} tok/s · {:.2f} ms/step · NFE {}{} · seed {} · #{}{}{}",
      stats.answer_tokens, ratio(stats.answer_tokens, stats.seconds), stats.committed_tokens,
      ratio(stats.committed_tokens, stats.seconds), ratio(stats.seconds * 1e3, stats.steps), stats.nfe,
      stats.rounds == 0 ? "" : fmt::format(" · {:.1f} tokens/round", ratio(stats.round_tokens, stats.rounds)),
      generation.options.seed, hash_text(generation.hash), arithmetic.empty() ? "" : " · ", arithmetic);
}

std::string told_arithmetic(const LanguageModel& model, const LoadOptions& load) {
  const bool chosen = !load.arithmetic.empty() || !load.attention_arithmetic.empty() || !load.numerics.empty();
  return chosen ? model.arithmetic() : "";
}

std::string empty_answer_note(const Generation& generation) {
  if (generation.text.find_first_not_of(" \t\r\n") != std::string::npos) return {};
  switch (generation.finish) {
    case FinishReason::kStop:
      if (!generation.stop_text.empty()) return "the answer is empty: it begins with a stop text";
      return "the answer is empty: the model predicted its end first; another --canvas-length may help, or "
             "--suppress-eos";
    case FinishReason::kLength:
      return "the answer is empty: white space and control tokens fill the canvas; another --canvas-length may help";
    case FinishReason::kCancelled:
      return "the answer is empty: it was stopped before its first token was final";
  }
  return {};
}

nlohmann::ordered_json stats_json(const GenerateStats& stats) {
  return {{"prompt_tokens", stats.prompt_tokens},
          {"answer_tokens", stats.answer_tokens},
          {"committed_tokens", stats.committed_tokens},
          {"steps", stats.steps},
          {"nfe", stats.nfe},
          {"forced", stats.forced},
          {"second_passes", stats.second_passes},
          {"rounds", stats.rounds},
          {"round_tokens", stats.round_tokens},
          {"tokens_per_round", ratio(stats.round_tokens, stats.rounds)},
          {"rows_forwarded", stats.rows_forwarded},
          {"rows_scored", stats.rows_scored},
          {"seconds", stats.seconds},
          {"tokens_per_second", ratio(stats.answer_tokens, stats.seconds)},
          {"ms_per_step", ratio(stats.seconds * 1e3, stats.steps)},
          {"tokens_per_step", ratio(stats.committed_tokens, stats.steps)},
          {"tokens_per_forward", ratio(stats.committed_tokens, stats.nfe)}};
}

nlohmann::ordered_json run_config(const LanguageModel& model, const ModelFlags& flags, const ResolvedOptions& options,
                                  const std::string& command) {
  return {{"options", options_json(options)},
          {"model",
           {{"path", flags.path},
            {"embedded", flags.path.empty()},
            {"name", model.name()},
            {"architecture", model.architecture()},
            {"vocabulary", model.vocab_size()},
            {"context", model.context_length()}}},
          {"load",
           {{"threads", model.threads()},
            {"isa", model.isa()},
            {"arithmetic", model.arithmetic()},
            {"cache_type", flags.load.cache_type},
            {"activations", flags.load.activations}}},
          {"version", DLLM_VERSION},
          {"host", {{"cpu", cpu_name()}, {"system", host_system().text()}}},
          {"command", command}};
}

nlohmann::ordered_json generation_json(const Generation& generation) {
  nlohmann::ordered_json json = {{"text", generation.text},
                                 {"prompt_ids", generation.prompt_ids},
                                 {"ids", generation.ids},
                                 {"commit_step", generation.commit_step},
                                 {"confidence", generation.confidence},
                                 {"finish", finish_name(generation.finish)},
                                 {"stop_text", generation.stop_text},
                                 {"stats", stats_json(generation.stats)},
                                 {"hash", hash_text(generation.hash)}};
  if (generation.virtual_time)
    json["virtual_time"] = virtual_json(*generation.virtual_time, generation.stats.answer_tokens);
  return json;
}

std::string dump(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string virtual_line(const Generation& generation) {
  if (!generation.virtual_time) return {};
  const VirtualTime& time = *generation.virtual_time;
  const double seconds = time.parts.seconds();
  double slow = 0;
  std::size_t simulated = 0;
  for (const VirtualStep& step : time.steps) {
    slow += step.throttled ? step.parts.seconds() : 0;
    simulated += step.simulated ? 1 : 0;
  }
  std::string notes = slow > 0 ? fmt::format(", {:.0f} % at the lowered clock", 100 * slow / seconds) : "";
  if (simulated > 0 || !time.unsimulated.empty())
    notes += fmt::format(", {} of {} passes simulated", simulated, time.steps.size());
  if (!time.unsimulated.empty()) notes += fmt::format(" (not {})", time.unsimulated);
  return fmt::format("{}, virtual time: prompt {}, first block {}, answer {} ({:.1f} tok/s), {}{}", time.device,
                     measured(time.prompt_seconds, "s"), measured(time.first_block_seconds, "s"),
                     measured(seconds, "s"), ratio(generation.stats.answer_tokens, seconds),
                     measured(time.energy.joules(), "J"), notes);
}

namespace {

nlohmann::ordered_json parts_ms(const VirtualParts& parts) {
  nlohmann::ordered_json json;
  for (const auto& [name, part] : kVirtualParts) json[name] = parts.*part * 1e3;
  return json;
}

nlohmann::ordered_json parts_joules(const VirtualEnergy& energy) {
  nlohmann::ordered_json json;
  for (const auto& [name, part] : kVirtualEnergy) json[name] = energy.*part;
  return json;
}

}  // namespace

nlohmann::ordered_json virtual_sum_json(const VirtualParts& parts, const VirtualEnergy& energy) {
  return {{"ms", parts.seconds() * 1e3},
          {"joules", energy.joules()},
          {"parts_ms", parts_ms(parts)},
          {"parts_joules", parts_joules(energy)}};
}

nlohmann::ordered_json virtual_json(const VirtualTime& time, std::int32_t answer_tokens) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const VirtualStep& step : time.steps)
    steps.push_back({{"rows", step.rows},
                     {"scored", step.scored},
                     {"keys", step.keys},
                     {"ms", step.parts.seconds() * 1e3},
                     {"joules", step.energy.joules()},
                     {"rise_k", step.rise_kelvin},
                     {"throttled", step.throttled},
                     {"simulated", step.simulated},
                     {"parts_ms", parts_ms(step.parts)}});
  nlohmann::ordered_json refreshes = nlohmann::ordered_json::array();
  for (const VirtualRefresh& one : time.refreshes)
    refreshes.push_back({{"rows", one.rows},
                         {"scored", one.scored},
                         {"keys", one.keys},
                         {"start_ms", one.start_seconds * 1e3},
                         {"end_ms", one.end_seconds * 1e3}});
  return {{"device", time.device},
          {"ms", time.parts.seconds() * 1e3},
          {"joules", time.energy.joules()},
          {"prompt_ms", time.prompt_seconds * 1e3},
          {"first_block_ms", time.first_block_seconds * 1e3},
          {"tokens_per_second", ratio(answer_tokens, time.parts.seconds())},
          {"parts_ms", parts_ms(time.parts)},
          {"parts_joules", parts_joules(time.energy)},
          {"unsimulated", time.unsimulated},
          {"steps", steps},
          {"refreshes", refreshes}};
}

}  // namespace dllm::app

#include "engine/trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/to_size.h"
#include "dllm/version.h"

namespace dllm {
namespace {

using OrderedJson = nlohmann::ordered_json;

}  // namespace

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

OrderedJson trace_changes(const LanguageModel& model, const StepEvent& event, bool first) {
  OrderedJson list = OrderedJson::array();
  for (std::size_t p = to_size(event.prompt_length); p < event.canvas.size(); ++p) {
    const CanvasCell& cell = event.canvas[p];
    if (first ? cell.masked && !cell.changed : !cell.changed) continue;
    const auto text = cell.masked ? Expected<std::string>("") : model.detokenize({cell.token}, /*special=*/true);
    list.push_back({static_cast<std::int64_t>(p) - event.prompt_length, cell.masked ? -1 : cell.token,
                    text ? *text : "", cell.masked ? 0 : cell.confidence});
  }
  return list;
}

OrderedJson trace_step(const LanguageModel& model, const StepEvent& event, double seconds, bool first) {
  return {{"step", event.step},
          {"nfe", event.nfe},
          {"masked", event.masked},
          {"positions", static_cast<std::int64_t>(event.canvas.size()) - event.prompt_length},
          {"seconds", seconds},
          {"window", {event.block_begin - event.prompt_length, event.block_end - event.prompt_length}},
          {"changes", trace_changes(model, event, first)}};
}

OrderedJson trace_result(const Generation& generation) {
  return {{"text", generation.text},
          {"finish", finish_name(generation.finish)},
          {"answer_tokens", generation.stats.answer_tokens},
          {"nfe", generation.stats.nfe},
          {"steps", generation.stats.steps},
          {"seconds", generation.stats.seconds},
          {"seed", generation.options.seed},
          {"hash", fmt::format("{:016x}", generation.hash)}};
}

OrderedJson options_json(const ResolvedOptions& options) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [key, value] : options.values)
    std::visit([&json, name = key](const auto& one) { json[name] = one; }, value);
  if (!options.stop.empty()) json["stop"] = options.stop;
  return json;
}

OrderedJson trace_run(const LanguageModel& model, OrderedJson messages, OrderedJson steps,
                      const Generation& generation) {
  return {{"model", {{"name", model.name()}, {"architecture", model.architecture()}}},
          {"messages", std::move(messages)},
          {"options", options_json(generation.options)},
          {"steps", std::move(steps)},
          {"result", trace_result(generation)}};
}

OrderedJson trace_document(OrderedJson runs) {
  return {{"type", "dllm-trace"},
          {"version", kTraceVersion},
          {"program", std::string("dllm ") + DLLM_VERSION},
          {"runs", std::move(runs)}};
}

}  // namespace dllm

#include "app/cli/virtual_trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dllm::app {
namespace {

using TraceJson = nlohmann::ordered_json;

std::vector<std::pair<const char*, double>> named_parts(const VirtualParts& p) {
  return {{"host", p.host},
          {"dispatch", p.dispatch},
          {"staging", p.staging},
          {"memory", p.memory},
          {"vector", p.vector},
          {"array", p.array},
          {"contention", p.contention},
          {"waiting for the refresh", p.refresh}};
}

TraceJson track_name(std::size_t track, const std::string& name) {
  return {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", track}, {"args", {{"name", name}}}};
}

TraceJson slice_of(std::size_t track, const std::string& name, double start, double seconds, TraceJson args) {
  return {{"name", name},         {"ph", "X"},   {"pid", 1}, {"tid", track}, {"ts", start * 1e6},
          {"dur", seconds * 1e6}, {"args", args}};
}

}  // namespace

TraceJson virtual_trace(const VirtualTime& time) {
  TraceJson events = TraceJson::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"args", {{"name", time.device}}}});
  events.push_back(track_name(0, "passes"));
  const auto tracks = named_parts({});
  for (std::size_t i = 0; i < tracks.size(); ++i) events.push_back(track_name(i + 1, tracks[i].first));
  const std::size_t refreshing = tracks.size() + 1;
  if (!time.refreshes.empty()) events.push_back(track_name(refreshing, "refresh on the host"));
  for (const VirtualRefresh& one : time.refreshes)
    events.push_back(slice_of(refreshing, "refresh", one.start_seconds, one.end_seconds - one.start_seconds,
                              {{"rows", one.rows}, {"scored", one.scored}, {"keys", one.keys}}));
  double now = 0;
  for (std::size_t s = 0; s < time.steps.size(); ++s) {
    const VirtualStep& step = time.steps[s];
    events.push_back(slice_of(
        0, fmt::format("pass {}", s), now, step.parts.seconds(),
        {{"rows", step.rows}, {"scored", step.scored}, {"keys", step.keys}, {"joules", step.energy.joules()}}));
    double at = now;
    const auto parts = named_parts(step.parts);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& [name, seconds] = parts[i];
      if (seconds > 0) events.push_back(slice_of(i + 1, name, at, seconds, TraceJson::object()));
      at += seconds;
    }
    now += step.parts.seconds();
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

}  // namespace dllm::app

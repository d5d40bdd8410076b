#include "app/cli/step_log.h"

#include <nlohmann/json.hpp>

namespace dllm::app {

nlohmann::ordered_json StepLog::step(const StepEvent& event) {
  using Json = nlohmann::ordered_json;
  const std::vector<CanvasCell> now(event.canvas.begin() + event.prompt_length, event.canvas.end());
  // Before the first step all positions are masks (or, in models that refine canvases, random tokens).
  if (canvas_.empty()) canvas_.resize(now.size(), CanvasCell{-1, true, false, 0});
  Json commits = Json::array(), revisions = Json::array(), remasked = Json::array();
  for (std::size_t i = 0; i < now.size(); ++i) {
    const CanvasCell &before = canvas_[i], &cell = now[i];
    if (cell.masked) {
      if (!before.masked) remasked.push_back(i);
      continue;
    }
    if (!before.masked && before.token == cell.token) continue;
    const auto text = model_.detokenize({cell.token}, true);
    Json entry = {{"position", i}, {"token", cell.token}, {"text", text ? *text : ""}, {"confidence", cell.confidence}};
    if (before.masked) {
      commits.push_back(std::move(entry));
    } else {
      entry["was"] = before.token;
      revisions.push_back(std::move(entry));
    }
  }
  canvas_ = now;
  return {{"type", "step"},
          {"step", event.step},
          {"nfe", event.nfe},
          {"window", {event.block_begin - event.prompt_length, event.block_end - event.prompt_length}},
          {"masked", event.masked},
          {"text", event.text},
          {"commits", std::move(commits)},
          {"revisions", std::move(revisions)},
          {"remasked", std::move(remasked)}};
}

}  // namespace dllm::app

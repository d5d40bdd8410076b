#include "decode/loop/pass_recorder.h"

#include <algorithm>
#include <utility>

#include "base/to_size.h"

namespace dllm {

void PassRecorder::begin(const Canvas& canvas, const DenoisePass& pass, PositionRange window) {
  if (!on_) return;
  record_ = {};
  prompt_end_ = canvas.prompt_end();
  before_.clear();
  for (Position p = prompt_end_; p < canvas.size(); ++p) before_.push_back(canvas.token(p));
  for (const Position p : pass.asked())
    if (!canvas.masked(p)) record_.reviewed.push_back(p - prompt_end_);
  record_.held = !pass.draining && canvas.masked_count(window) == 0;
}

void PassRecorder::refresh(std::span<const Position> positions) {
  if (!on_) return;
  for (const Position p : positions) record_.refreshed.push_back(p - prompt_end_);
}

void PassRecorder::change(std::span<const Edit> edits) { add(edits, record_.changes); }

void PassRecorder::merge(std::span<const Edit> edits) { add(edits, record_.merged); }

void PassRecorder::add(std::span<const Edit> edits, std::vector<PassChange>& changes) {
  for (const Edit& edit : edits) {
    if (!on_) return;
    PassChange change{.position = edit.position - prompt_end_};
    switch (edit.kind) {
      case EditKind::kCommit:
        break;
      case EditKind::kRevise:
        change.kind = PassChange::Kind::kRevise;
        break;
      case EditKind::kRemask:
        change.kind = PassChange::Kind::kRemask;
        break;
      case EditKind::kLeave:
      case EditKind::kInsert:
      case EditKind::kDelete:
        on_ = false;
        return;
    }
    change.ends = change.kind != PassChange::Kind::kRemask &&
                  std::find(stop_ids_.begin(), stop_ids_.end(), edit.token) != stop_ids_.end();
    put(change, edit.token, changes);
  }
}

/// A token that was masked again and then, as no other pass could follow without progress, committed is one change.
void PassRecorder::put(const PassChange& change, TokenId token, std::vector<PassChange>& changes) {
  const auto known = std::ranges::find(changes, change.position, &PassChange::position);
  if (known == changes.end()) {
    changes.push_back(change);
  } else if (before_[to_size(change.position)] == token) {
    changes.erase(known);
  } else {
    *known = {change.position, PassChange::Kind::kRevise, change.ends};
  }
}

std::optional<PassRecord> PassRecorder::end(Position settled) {
  if (!on_) return std::nullopt;
  for (auto* const changes : {&record_.changes, &record_.merged})
    std::sort(changes->begin(), changes->end(),
              [](const PassChange& a, const PassChange& b) { return a.position < b.position; });
  record_.settled = settled - prompt_end_;
  return std::exchange(record_, {});
}

}  // namespace dllm

#include "decode/window/answer_growth.h"

#include <algorithm>

#include "decode/registry.h"

namespace dllm {
namespace {

OptionRows<GrowthConfig> growth_rows() {
  using G = GrowthConfig;
  const auto inserts = [](const G& config) { return config.insert > 1; };
  const std::string when = "with --grow-insert above 1";
  return {
      option("grow_initial", &G::initial, 1, kMostPositions, "positions",
             "positions of the answer that are seen first"),
      option("grow_step", &G::step, 1, kMostPositions, "positions",
             "positions that are added while no end is in sight"),
      option("grow_check", &G::check, 1, kMostPositions, "positions",
             "positions at the end of the answer that should predict its end"),
      option("grow_threshold", &G::threshold, 0, 1, "", "their confidence at which the answer is long enough"),
      option("grow_insert", &G::insert, 1, kMostPositions, "positions",
             "masks in place of one of low confidence; 1: none are inserted"),
      option("grow_insert_below", &G::insert_below, 0, 1, "", "confidence below which masks are inserted")
          .only(when, inserts),
      option("grow_insert_until", &G::insert_until, 0, 1, "",
             "confidence in the answer's end from which no masks are inserted")
          .only(when, inserts),
  };
}

}  // namespace

SuffixEntry grow_suffix() {
  return declare_method<Suffix>("grow", "as many masks as the answer seems to need (DAEDAL)", growth_rows(),
                                [](const GrowthConfig& config, const MethodContext&) {
                                  return std::make_unique<Suffix>(Suffix{SuffixPolicy::kGrow, 0, config});
                                })
      .always({.grows = true});
}

AnswerGrowth::AnswerGrowth(const Suffix& suffix, const Canvas& canvas, std::vector<TokenId> stop_ids)
    : stop_ids_(std::move(stop_ids)), size_(canvas.size()), end_(canvas.size()) {
  if (suffix.policy != SuffixPolicy::kGrow) return;
  config_ = suffix.growth;
  end_ = std::min(size_, canvas.prompt_end() + config_->initial);
  measuring_ = end_ < size_;
}

bool AnswerGrowth::inserts(const Canvas& canvas) const {
  return on() && !measuring_ && config_->insert > 1 && end_ < canvas.size();
}

std::vector<Position> AnswerGrowth::wanted(const Canvas& canvas, Position from) const {
  std::vector<Position> result;
  if (!measuring_ && !inserts(canvas)) return result;
  for (Position p = from; p < end_; ++p)
    if (canvas.masked(p)) result.push_back(p);
  return result;
}

/// Stop tokens that are committed count as certain.
double AnswerGrowth::ending(const Canvas& canvas, std::span<const Candidate> candidates) const {
  const auto stops = [this](TokenId token) { return std::ranges::count(stop_ids_, token) > 0; };
  double sum = 0;
  Position found = 0;
  std::size_t rest = candidates.size();
  for (Position p = end_ - 1; p >= canvas.prompt_end() && found < config_->check; --p) {
    while (rest > 0 && candidates[rest - 1].position > p) --rest;
    const bool predicted = rest > 0 && candidates[rest - 1].position == p;
    const bool ends = canvas.masked(p) ? predicted && stops(candidates[rest - 1].token) : stops(canvas.token(p));
    if (!ends) continue;
    sum += canvas.masked(p) ? candidates[rest - 1].confidence : 1;
    ++found;
  }
  return sum / config_->check;
}

void AnswerGrowth::grow(Position positions) { end_ = std::min(size_, end_ + positions); }

void AnswerGrowth::reach(Position end) { end_ = std::max(end_, end); }

void AnswerGrowth::measure(const Canvas& canvas, std::span<const Candidate> answer) {
  measuring_ = ending(canvas, answer) < config_->threshold;
  if (measuring_) grow(config_->step);
  measuring_ = measuring_ && end_ < size_;
}

std::vector<Edit> AnswerGrowth::insert(const Canvas& canvas, std::span<const Candidate> candidates,
                                       std::size_t decided) {
  std::vector<Edit> edits;
  if (!inserts(canvas) || ending(canvas, candidates) >= config_->insert_until) return edits;
  const Candidate* least = nullptr;
  for (const Candidate& candidate : candidates.first(decided))
    if (canvas.masked(candidate.position) && candidate.confidence < config_->insert_below &&
        (least == nullptr || candidate.confidence < least->confidence))
      least = &candidate;
  if (least == nullptr) return edits;
  for (Position i = 1; i < config_->insert && end_ < size_; ++i) {
    grow(1);
    edits.push_back({.position = least->position, .kind = EditKind::kInsert, .end = end_});
  }
  return edits;
}

}  // namespace dllm

// dInfer's hierarchical decoding (dllm-reference C.4). The masked positions of the window fall into runs of neighbours;
// each run commits its most confident position if that exceeds the low threshold, whatever exceeds the high one goes
// too, and the most confident of all always does. A commit inside every gap halves the gaps: O(log n) steps at best.
//
// "hierarchical-remask" also reconsiders committed tokens of the window whose probability has fallen below
// --remask-threshold: they join the runs, and those that are not chosen again become masks. With r such tokens at least
// r + 1 positions are chosen, so each step leaves fewer masks than the one before.
#include <algorithm>
#include <cmath>

#include "decode/decoder.h"

namespace dllm {
namespace {

class Hierarchical : public Decoder {
 public:
  Hierarchical(const DecoderConfig& config, bool remasks) : config_(config), remasks_(remasks) {}

  std::vector<Position> wanted(const DecodeContext& context) override {
    return remasks_ ? generated_positions(context) : Decoder::wanted(context);
  }

  std::vector<TokenQuery> queries(const DecodeContext& context) override {
    std::vector<TokenQuery> current;
    if (!remasks_) return current;
    for (Position p : generated_positions(context))
      if (!context.canvas.masked(p)) current.push_back({p, context.canvas.token(p)});
    return current;
  }

  bool revises() const override { return remasks_; }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Place> places = open_places(context, candidates);
    choose_best_of_runs(places);
    for (Place& place : places) place.chosen |= place.eligible() && place.confidence() > config_.threshold;
    const auto doubtful = static_cast<std::size_t>(
        std::count_if(places.begin(), places.end(), [](const Place& place) { return !place.masked; }));
    choose_at_least(places, doubtful + 1);
    return edits(places);
  }

 private:
  struct Place {
    const Candidate* candidate;
    bool masked;
    double current;  ///< probability of the token that stands there
    bool chosen = false;
    bool eligible() const { return candidate->eligible; }
    double confidence() const { return candidate->confidence; }
    Position position() const { return candidate->position; }
  };

  /// Masked positions and doubtful tokens, ascending.
  std::vector<Place> open_places(const DecodeContext& context, std::span<const Candidate> candidates) const {
    std::vector<Place> places;
    for (const Candidate& candidate : candidates) {
      if (context.canvas.masked(candidate.position)) {
        places.push_back({&candidate, true, 0});
        continue;
      }
      const double distance = static_cast<double>(candidate.queried[0]) - static_cast<double>(candidate.logit);
      const double current = candidate.confidence * std::exp(distance);
      if (current < config_.remask_threshold) places.push_back({&candidate, false, current});
    }
    return places;
  }

  void choose_best_of_runs(std::vector<Place>& places) const {
    for (std::size_t begin = 0, end = 0; begin < places.size(); begin = end) {
      end = begin + 1;
      while (end < places.size() && places[end].position() == places[end - 1].position() + 1) ++end;
      double best = config_.low_threshold;
      for (std::size_t i = begin; i < end; ++i)
        if (places[i].eligible()) best = std::max(best, places[i].confidence());
      for (std::size_t i = begin; i < end; ++i)
        places[i].chosen = places[i].eligible() && places[i].confidence() == best && best > config_.low_threshold;
    }
  }

  static void choose_at_least(std::vector<Place>& places, std::size_t count) {
    std::vector<Place*> ranked;
    for (Place& place : places)
      if (place.eligible()) ranked.push_back(&place);
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const Place* a, const Place* b) { return a->candidate->log_odds > b->candidate->log_odds; });
    if (!ranked.empty()) ranked.front()->chosen = true;
    auto chosen = static_cast<std::size_t>(
        std::count_if(places.begin(), places.end(), [](const Place& place) { return place.chosen; }));
    for (Place* place : ranked) {
      if (chosen >= count) break;
      if (place->chosen) continue;
      place->chosen = true;
      ++chosen;
    }
  }

  /// Where too few predictions may be committed to make up for every doubtful token, the surest of those stay.
  static std::vector<Edit> edits(const std::vector<Place>& places) {
    std::vector<Edit> result;
    std::vector<const Place*> dropped;
    std::size_t commits = 0;
    for (const Place& place : places) {
      if (place.chosen && place.masked) {
        result.push_back(commit(*place.candidate));
        ++commits;
      } else if (place.chosen) {
        Edit edit = commit(*place.candidate);
        edit.kind = EditKind::kRevise;
        result.push_back(edit);
      } else if (!place.masked) {
        dropped.push_back(&place);
      }
    }
    if (commits == 0) return {};  // the loop's progress rule decides
    std::stable_sort(dropped.begin(), dropped.end(),
                     [](const Place* a, const Place* b) { return a->current < b->current; });
    dropped.resize(std::min(dropped.size(), commits - 1));
    for (const Place* place : dropped) result.push_back({place->position(), -1, EditKind::kRemask, place->current});
    return result;
  }

  DecoderConfig config_;
  bool remasks_;
};

}  // namespace

std::unique_ptr<Decoder> make_hierarchical_decoder(const DecoderConfig& config) {
  return std::make_unique<Hierarchical>(config, false);
}
std::unique_ptr<Decoder> make_hierarchical_remask_decoder(const DecoderConfig& config) {
  return std::make_unique<Hierarchical>(config, true);
}

}  // namespace dllm

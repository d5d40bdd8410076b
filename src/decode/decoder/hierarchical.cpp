// dInfer's hierarchical decoding (arXiv 2510.08666). The masked positions of the window form runs of neighbours. Each
// run commits its most confident position if that exceeds the low threshold; positions above the high threshold are
// committed too, and the most confident of all always is. A commit inside every gap halves the gaps: O(log n) steps at
// best.
//
// "hierarchical-remask" (get_transfer_index_hierarchy_remask) also predicts the committed positions of the window.
// Where the *prediction's* probability is below --remask-threshold, whatever token is shown, the model no longer
// knows what belongs there: the position joins the runs like a mask, takes its own prediction if it is chosen, and
// becomes a mask if not. With r such positions at least r + 1 are chosen, so each step leaves fewer masks than the
// one before.
//
// Under --compat the mask token is a prediction like any other: choosing it leaves, or makes, a mask. A step may then
// leave as many masks as before; the progress rule applies once a state repeats.
#include <algorithm>

#include "base/to_size.h"
#include "decode/decoder/seen_states.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct HierarchicalOptions : ThresholdOptions {
  double low_threshold = 0.4;
};

struct RemaskOptions : HierarchicalOptions {
  double remask_threshold = 0.4;
};

OptionRows<HierarchicalOptions> hierarchical_rows() {
  return join_rows<HierarchicalOptions>(
      threshold_rows(), OptionRows<HierarchicalOptions>{
                            option("low_threshold", &HierarchicalOptions::low_threshold, 0, 2, "",
                                   "commit the best of each run of neighbouring masks above this confidence")});
}

OptionRows<RemaskOptions> hierarchical_remask_rows() {
  return join_rows<RemaskOptions>(
      hierarchical_rows(), OptionRows<RemaskOptions>{option(
                               "remask_threshold", &RemaskOptions::remask_threshold, 0, 1, "",
                               "turn committed tokens back into masks if the prediction there is less probable")});
}

class Hierarchical : public Decoder {
 public:
  Hierarchical(const RemaskOptions& config, bool remasks, bool upstream)
      : config_(config), remasks_(remasks), upstream_(upstream) {}

  std::vector<Position> wanted(const DecodeContext& context) override {
    return remasks_ ? generated_positions(context) : Decoder::wanted(context);
  }

  bool revises() const override { return remasks_; }
  bool keeps_schedule() const override { return upstream_ && !repeated_; }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Place> places = open_places(context, candidates);
    choose_best_of_runs(places);
    for (Place& place : places) place.chosen |= place.eligible() && place.confidence() > config_.threshold;
    const auto doubtful =
        to_size(std::count_if(places.begin(), places.end(), [](const Place& place) { return !place.masked; }));
    choose_at_least(places, doubtful + 1);
    if (!upstream_) return edits(places);
    std::vector<Edit> result = upstream_edits(places, context.canvas.mask());
    repeated_ = states_.repeats(context, result);
    return result;
  }

 private:
  struct Place {
    const Candidate* candidate;
    bool masked;
    bool chosen = false;
    bool eligible() const { return candidate->eligible; }
    double confidence() const { return candidate->confidence; }
    Position position() const { return candidate->position; }
  };

  /// Masked positions and doubtful ones, ascending.
  std::vector<Place> open_places(const DecodeContext& context, std::span<const Candidate> candidates) const {
    std::vector<Place> places;
    for (const Candidate& candidate : candidates) {
      const bool masked = context.canvas.masked(candidate.position);
      if (masked || candidate.confidence < config_.remask_threshold) places.push_back({&candidate, masked});
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
    auto chosen = to_size(std::count_if(places.begin(), places.end(), [](const Place& place) { return place.chosen; }));
    for (Place* place : ranked) {
      if (chosen >= count) break;
      if (place->chosen) continue;
      place->chosen = true;
      ++chosen;
    }
  }

  /// If too few predictions may be committed to outnumber the doubtful tokens, the most certain of these stay.
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
                     [](const Place* a, const Place* b) { return a->confidence() < b->confidence(); });
    dropped.resize(std::min(dropped.size(), commits - 1));
    for (const Place* place : dropped)
      result.push_back({place->position(), -1, EditKind::kRemask, place->confidence()});
    return result;
  }

  /// As many positions as needed are chosen, whatever their predictions.
  static std::vector<Edit> upstream_edits(const std::vector<Place>& places, TokenId mask) {
    std::vector<Edit> result;
    for (const Place& place : places) {
      const bool takes = place.chosen && place.candidate->token != mask;
      if (place.masked && takes) result.push_back(commit(*place.candidate));
      if (!place.masked)
        result.push_back({place.position(), takes ? place.candidate->token : -1,
                          takes ? EditKind::kRevise : EditKind::kRemask, place.confidence()});
    }
    return result;
  }

  RemaskOptions config_;
  bool remasks_;
  bool upstream_;  ///< as in dInfer: the mask is a token like any other
  bool repeated_ = false;
  SeenStates states_;
};

}  // namespace

DecoderEntry hierarchical_decoder() {
  return declare_method<Decoder>("hierarchical", "the best of each run of masks, and all confident positions (dInfer)",
                                 hierarchical_rows(), [](const HierarchicalOptions& options, const MethodContext&) {
                                   return std::make_unique<Hierarchical>(RemaskOptions{options}, false, false);
                                 });
}

DecoderEntry hierarchical_remask_decoder() {
  return declare_method<Decoder>("hierarchical-remask", "hierarchical, and doubtful tokens become masks again",
                                 hierarchical_remask_rows(),
                                 [](const RemaskOptions& options, const MethodContext& context) {
                                   return std::make_unique<Hierarchical>(options, true, context.compat);
                                 })
      .always({.revises = true});
}

}  // namespace dllm

// What decoders in Python are told: dllm.Context and dllm.Candidates.
#include "candidates.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace dllm::python {

namespace nb = nanobind;

Context context_of(const DecodeContext& from, std::shared_ptr<Candidates> previous) {
  Context context;
  const Canvas& canvas = from.canvas;
  for (Position p = 0; p < canvas.size(); ++p) {
    context.tokens.push_back(canvas.token(p));
    context.masked.push_back(canvas.masked(p) ? 1 : 0);
    context.kv_age.push_back(kv_age(from.cache, p));
  }
  context.prompt_end = canvas.prompt_end();
  context.window_step = from.window_step;
  context.masks_at_start = from.window_masks_at_start;
  context.step = from.step;
  context.window = from.window;
  context.previous = std::move(previous);
  return context;
}

Candidates columns_of(std::span<const Candidate> candidates, std::size_t top, bool logits) {
  Candidates columns;
  columns.rows.assign(candidates.begin(), candidates.end());
  columns.top = top;
  for (Candidate& row : columns.rows) {
    for (const TopToken& token : row.top.first(std::min(top, row.top.size()))) {
      columns.top_tokens.push_back(token.token);
      columns.top_logits.push_back(token.logit);
    }
    columns.own.push_back(row.queried.empty() ? std::numeric_limits<double>::quiet_NaN() : probability_of_queried(row));
    if (logits) columns.logits.insert(columns.logits.end(), row.logits.begin(), row.logits.end());
    row.top = {}, row.queried = {}, row.logits = {};
  }
  return columns;
}

namespace {

template <class T>
auto field_column(T Candidate::* member) {
  return [member](const Candidates& c) { return c.column_of<T>([member](const Candidate& r) { return r.*member; }); };
}

void bind_rows(nb::module_& module) {
  nb::class_<Candidates>(module, "Candidates", "The predictions of a step; arrays with an entry per position.")
      .def("__len__", [](const Candidates& c) { return c.rows.size(); })
      .def_prop_ro("position", field_column(&Candidate::position), nb::rv_policy::move)
      .def_prop_ro("token", field_column(&Candidate::token), nb::rv_policy::move)
      .def_prop_ro("confidence", field_column(&Candidate::confidence), nb::rv_policy::move)
      .def_prop_ro("log_odds", field_column(&Candidate::log_odds), nb::rv_policy::move,
                   "of the confidence; ranks those that round to 1")
      .def_prop_ro("margin", field_column(&Candidate::margin), nb::rv_policy::move,
                   "largest minus second largest probability")
      .def_prop_ro("entropy", field_column(&Candidate::entropy), nb::rv_policy::move, "nats")
      .def_prop_ro("eligible", field_column(&Candidate::eligible), nb::rv_policy::move,
                   "False where the model predicts the mask itself: such a position should wait")
      .def_prop_ro(
          "top_tokens",
          [](const Candidates& c) { return to_numpy<std::int32_t>(std::vector(c.top_tokens), {c.rows.size(), c.top}); },
          nb::rv_policy::move, "ids of the best tokens, best first: len(candidates) x top_tokens of the class")
      .def_prop_ro(
          "top_logits",
          [](const Candidates& c) { return to_numpy<float>(std::vector(c.top_logits), {c.rows.size(), c.top}); },
          nb::rv_policy::move)
      .def_prop_ro(
          "top_probabilities",
          [](const Candidates& c) {
            std::vector<double> values;
            for (std::size_t i = 0; i < c.rows.size(); ++i)
              for (std::size_t j = 0; j < c.top; ++j) values.push_back(c.top_probability(i, j));
            return to_numpy<double>(std::move(values), {c.rows.size(), c.top});
          },
          nb::rv_policy::move, "of the top_tokens, on the scale of confidence")
      .def_prop_ro(
          "own_probability", [](const Candidates& c) { return to_numpy<double>(std::vector(c.own)); },
          nb::rv_policy::move,
          "of the token that is there, for decided positions of a decoder that revises, and for shadows; else NaN")
      .def_prop_ro(
          "logits",
          [](const Candidates& c) {
            const std::size_t rows = c.rows.size();
            return to_numpy<float>(std::vector(c.logits), {rows, rows == 0 ? 0 : c.logits.size() / rows});
          },
          nb::rv_policy::move,
          "of all tokens, before token rules: len(candidates) x vocabulary with logits = True of the class, else x 0");
}

void bind_context(nb::module_& module) {
  nb::class_<Context>(module, "Context", "The state of a sequence.")
      .def_prop_ro(
          "tokens", [](const Context& c) { return to_numpy<std::int32_t>(std::vector(c.tokens)); }, nb::rv_policy::move,
          "ids of the canvas")
      .def_prop_ro(
          "masked", [](const Context& c) { return to_numpy<bool>(std::vector(c.masked)); }, nb::rv_policy::move)
      .def_prop_ro(
          "kv_age", [](const Context& c) { return to_numpy<std::int32_t>(std::vector(c.kv_age)); }, nb::rv_policy::move,
          "passes since K and V of each position were computed; 0: in the last one, -1: never")
      .def_ro("prompt_end", &Context::prompt_end)
      .def_prop_ro(
          "window", [](const Context& c) { return std::pair(c.window.begin, c.window.end); },
          "the positions being decoded: (begin, end)")
      .def_ro("window_step", &Context::window_step, "steps made in this window")
      .def_ro("masks_at_start", &Context::masks_at_start, "masks of the window at its first step")
      .def_ro("step", &Context::step, "steps made in the sequence")
      .def_prop_ro(
          "previous", [](const Context& c) { return c.previous; }, nb::sig("def previous(self) -> Candidates | None"),
          "the candidates of the pass before; None in the first")
      .def_prop_ro(
          "shadows", [](const Context& c) { return c.shadows; }, nb::sig("def shadows(self) -> Candidates | None"),
          "in decode(): the predictions at shadowed() positions, each without its token in the input");
}

}  // namespace

void bind_candidates(nb::module_& module) {
  bind_rows(module);
  bind_context(module);
}

}  // namespace dllm::python

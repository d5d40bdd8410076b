// Decoders written in Python: dllm.Decoder.
#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>

#include "arrays.h"
#include "bindings.h"
#include "decode/decoder.h"
#include "engine/option_parts.h"
#include "options.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

/// What decode() is told of the sequence, copied: Python may keep it.
struct Context {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> masked;
  std::int32_t prompt_end = 0, window_step = 0, masks_at_start = 0;
  std::uint32_t step = 0;
  PositionRange window;
};

/// The predictions of a step, as columns.
struct Candidates {
  std::vector<Candidate> rows;  ///< without their spans
  std::vector<std::int32_t> top_tokens;
  std::vector<float> top_logits;
  std::size_t top = 0;  ///< of each row

  template <class T, class Get>
  auto column_of(Get get) const {
    return column<T>(rows, get);
  }
};

Context context_of(const DecodeContext& from) {
  Context context;
  const Canvas& canvas = from.canvas;
  for (Position p = 0; p < canvas.size(); ++p) {
    context.tokens.push_back(canvas.token(p));
    context.masked.push_back(canvas.masked(p) ? 1 : 0);
  }
  context.prompt_end = canvas.prompt_end();
  context.window_step = from.window_step;
  context.masks_at_start = from.window_masks_at_start;
  context.step = from.step;
  context.window = from.window;
  return context;
}

class PythonDecoder final : public Decoder {
 public:
  PythonDecoder(nb::object self, std::string name)
      : self_(std::move(self)), name_(std::move(name)), top_(nb::cast<std::int32_t>(self_.attr("top_tokens"))) {}
  ~PythonDecoder() override {
    const nb::gil_scoped_acquire acquire;
    self_.reset();
  }

  void configure(ScoreRequest& request) const override { request.top_tokens = std::max(request.top_tokens, top_); }
  bool commits_candidates() const override { return top_ == 0; }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const nb::gil_scoped_acquire acquire;
    Candidates columns;
    columns.rows.assign(candidates.begin(), candidates.end());
    columns.top = static_cast<std::size_t>(top_);
    for (Candidate& row : columns.rows) {
      for (const TopToken& token : row.top.first(std::min(columns.top, row.top.size()))) {
        columns.top_tokens.push_back(token.token);
        columns.top_logits.push_back(token.logit);
      }
      row.top = {}, row.queried = {};
    }
    std::vector<Edit> edits;
    for (const nb::handle chosen : self_.attr("decode")(context_of(context), columns))
      edits.push_back(edit_of(chosen, candidates));
    check_distinct(edits);
    return edits;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const {
    raise({ErrorCode::kUsage, what, "decode() of the decoder '" + name_ + "'", hint});
  }

  /// A position, or a position and a token.
  Edit edit_of(const nb::handle& chosen, std::span<const Candidate> candidates) const {
    Position position = -1;
    std::pair<Position, TokenId> both;
    const bool has_token = nb::try_cast(chosen, both);
    if (has_token)
      position = both.first;
    else if (!nb::try_cast(nb::hasattr(chosen, "item") ? nb::object(chosen.attr("item")()) : nb::borrow(chosen),
                           position))
      refuse("it returned " + nb::cast<std::string>(nb::repr(chosen)),
             "return positions, or pairs of a position and a token");
    const auto found = std::ranges::find(candidates, position, &Candidate::position);
    if (found == candidates.end())
      refuse(fmt::format("position {} is no candidate", position), "choose among candidates.position");
    Edit edit = commit(*found);
    if (has_token && both.second != found->token) {
      const bool known = std::ranges::any_of(found->top, [&](const TopToken& t) { return t.token == both.second; });
      if (!known)
        refuse(fmt::format("token {} is not among the best of position {}", both.second, position),
               "choose among candidates.top_tokens; top_tokens = N of the class says how many there are");
      edit.token = both.second;
    }
    return edit;
  }

  void check_distinct(std::vector<Edit>& edits) const {
    std::ranges::sort(edits, {}, &Edit::position);
    const auto twice = std::ranges::adjacent_find(edits, {}, &Edit::position);
    if (twice != edits.end()) refuse(fmt::format("position {} was returned twice", twice->position), "");
  }

  nb::object self_;
  std::string name_;
  std::int32_t top_;
};

/// A row of the option table from a dllm.Option.
OptionRow<OptionMap> row_of(const nb::handle& option) {
  OptionRow<OptionMap> row;
  OptionInfo& info = row.info;
  info.key = nb::cast<std::string>(option.attr("key"));
  std::string flag = "--" + info.key;
  std::ranges::replace(flag, '_', '-');
  info.flags = {flag};
  info.meaning = nb::cast<std::string>(option.attr("meaning"));
  info.unit = nb::cast<std::string>(option.attr("unit"));
  info.choices = nb::cast<std::vector<std::string>>(option.attr("choices"));
  const OptionValue standard = take(to_value(option.attr("default"), info.key));
  info.type = std::holds_alternative<bool>(standard)           ? OptionType::kBool
              : std::holds_alternative<std::int64_t>(standard) ? OptionType::kInteger
              : std::holds_alternative<double>(standard)       ? OptionType::kNumber
              : info.choices.empty()                           ? OptionType::kText
                                                               : OptionType::kChoice;
  if (info.type == OptionType::kInteger) {
    info.minimum = -kMostInteger;
    info.maximum = kMostInteger;
  }
  if (const nb::object least = option.attr("minimum"); !least.is_none()) info.minimum = nb::cast<double>(least);
  if (const nb::object most = option.attr("maximum"); !most.is_none()) info.maximum = nb::cast<double>(most);
  info.standard = take(fit_option(info, standard));
  row.store = [key = info.key](OptionMap& options, const OptionValue& value) { options[key] = value; };
  row.load = [key = info.key, standard = *info.standard](const OptionMap& options) -> std::optional<OptionValue> {
    const auto found = options.find(key);
    return found != options.end() ? found->second : standard;
  };
  return row;
}

void register_class(const nb::object& type) {
  const auto name = nb::cast<std::string>(type.attr("name"));
  OptionRows<OptionMap> rows;
  for (const nb::handle option : type.attr("options")) rows.push_back(row_of(option));
  // Entries live as long as the process. The class is never freed: at exit there may be no interpreter to free it.
  PyObject* const kept = nb::object(type).release().ptr();
  const auto make = [kept, name, rows](const OptionMap& options, const MethodContext& context) {
    const nb::gil_scoped_acquire acquire;
    nb::dict given;
    for (const auto& row : rows) given[row.info.key.c_str()] = to_python(*row.load(options));
    nb::object self = nb::borrow(kept)(**given);
    self.attr("length") = context.length;
    self.attr("block_length") = context.block_length;
    return std::make_unique<PythonDecoder>(std::move(self), name);
  };
  take(add_decoder(declare_method<Decoder, OptionMap>(name, nb::cast<std::string>(type.attr("meaning")), rows, make)));
}

void bind_candidates(nb::module_& module) {
  nb::class_<Candidates>(module, "Candidates", "The predictions of a step; arrays with an entry per position.")
      .def("__len__", [](const Candidates& c) { return c.rows.size(); })
      .def_prop_ro(
          "position",
          [](const Candidates& c) { return c.column_of<std::int32_t>([](const Candidate& r) { return r.position; }); },
          nb::rv_policy::move)
      .def_prop_ro(
          "token",
          [](const Candidates& c) { return c.column_of<std::int32_t>([](const Candidate& r) { return r.token; }); },
          nb::rv_policy::move)
      .def_prop_ro(
          "confidence",
          [](const Candidates& c) { return c.column_of<double>([](const Candidate& r) { return r.confidence; }); },
          nb::rv_policy::move)
      .def_prop_ro(
          "log_odds",
          [](const Candidates& c) { return c.column_of<double>([](const Candidate& r) { return r.log_odds; }); },
          nb::rv_policy::move, "of the confidence; ranks those that round to 1")
      .def_prop_ro(
          "margin",
          [](const Candidates& c) { return c.column_of<double>([](const Candidate& r) { return r.margin; }); },
          nb::rv_policy::move, "largest minus second largest probability")
      .def_prop_ro(
          "entropy",
          [](const Candidates& c) { return c.column_of<double>([](const Candidate& r) { return r.entropy; }); },
          nb::rv_policy::move, "nats")
      .def_prop_ro(
          "eligible",
          [](const Candidates& c) { return c.column_of<bool>([](const Candidate& r) { return r.eligible; }); },
          nb::rv_policy::move, "False where the model predicts the mask itself: such a position should wait")
      .def_prop_ro(
          "top_tokens",
          [](const Candidates& c) { return to_numpy<std::int32_t>(std::vector(c.top_tokens), {c.rows.size(), c.top}); },
          nb::rv_policy::move, "ids of the best tokens, best first: len(candidates) x top_tokens of the class")
      .def_prop_ro(
          "top_logits",
          [](const Candidates& c) { return to_numpy<float>(std::vector(c.top_logits), {c.rows.size(), c.top}); },
          nb::rv_policy::move);
}

}  // namespace

void bind_decoders(nb::module_& module) {
  bind_candidates(module);
  nb::class_<Context>(module, "Context", "The state of a sequence.")
      .def_prop_ro(
          "tokens", [](const Context& c) { return to_numpy<std::int32_t>(std::vector(c.tokens)); }, nb::rv_policy::move,
          "ids of the canvas")
      .def_prop_ro(
          "masked", [](const Context& c) { return to_numpy<bool>(std::vector(c.masked)); }, nb::rv_policy::move)
      .def_ro("prompt_end", &Context::prompt_end)
      .def_prop_ro(
          "window", [](const Context& c) { return std::pair(c.window.begin, c.window.end); },
          "the positions being decoded: (begin, end)")
      .def_ro("window_step", &Context::window_step, "steps made in this window")
      .def_ro("masks_at_start", &Context::masks_at_start, "masks of the window at its first step")
      .def_ro("step", &Context::step, "steps made in the sequence");
  module.def("register_decoder", &register_class);
}

}  // namespace dllm::python

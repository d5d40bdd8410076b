// Decoders written in Python: dllm.Decoder.
#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>

#include "bindings.h"
#include "calls.h"
#include "candidates.h"
#include "decode/decoder/decoder.h"
#include "dllm/decoder.h"
#include "engine/option_parts.h"
#include "options.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

class PythonDecoder final : public Decoder {
 public:
  PythonDecoder(nb::object self, std::string name)
      : self_(std::move(self)),
        name_(std::move(name)),
        top_(nb::cast<std::int32_t>(self_.attr("top_tokens"))),
        revises_(nb::cast<bool>(self_.attr("revises"))),
        logits_(nb::cast<bool>(self_.attr("logits"))),
        shadows_(shadows_of(self_.type())),
        wants_(overrides("wanted")),
        holds_(overrides("holds")) {}
  /// What the class declares, which was asked before there was an object.
  static MethodTraits declared(const nb::handle& type) {
    return {.revises = nb::cast<bool>(type.attr("revises")),
            .shadows = shadows_of(type),
            .commits_other = nb::cast<std::int32_t>(type.attr("top_tokens")) > 0};
  }
  /// Raises UsageError if the object says something else.
  void check_declared(const MethodTraits& traits) const {
    if (revises_ != traits.revises) refuse("the object and its class differ", "revises", "set it in the class");
    if ((top_ > 0) != traits.commits_other)
      refuse("the object and its class differ", "top_tokens", "set it in the class");
  }
  ~PythonDecoder() override {
    if (exiting()) {
      (void)self_.release();
      return;
    }
    const nb::gil_scoped_acquire acquire;
    self_.reset();
  }

  void configure(ScoreRequest& request) const override {
    request.top_tokens = std::max(request.top_tokens, top_);
    request.logits = request.logits || logits_;
  }
  bool revises() const override { return revises_; }
  bool keeps_schedule() const override { return acted_; }

  std::vector<Position> wanted(const DecodeContext& context) override { return asked_ = chosen_of(context); }

  /// Of decided tokens: what the model thinks of them.
  std::vector<TokenQuery> queries(const DecodeContext& context) override {
    std::vector<TokenQuery> result;
    if (!revises_) return result;
    for (const Position p : asked_)
      if (!context.canvas.masked(p)) result.push_back({p, context.canvas.token(p)});
    return result;
  }

  std::vector<Position> shadowed(const DecodeContext& context) override {
    if (!shadows_) return {};
    const Gil gil;
    std::vector<Position> decided = generated_positions(context);
    std::erase_if(decided, [&](Position p) { return context.canvas.masked(p); });
    const nb::object chosen = self_.attr("shadowed")(context_of(context, previous_));
    std::vector<Position> result;
    for (const nb::handle one : items(chosen, decided, "shadowed()")) {
      result.push_back(position_of(one, "shadowed()"));
      if (!std::ranges::binary_search(decided, result.back()))
        refuse(fmt::format("position {} is no decided one of the window", result.back()), "shadowed()",
               "choose among the positions of context.window that are not masked");
    }
    std::ranges::sort(result);
    if (const auto twice = std::ranges::adjacent_find(result); twice != result.end())
      refuse(fmt::format("position {} was returned twice", *twice), "shadowed()", "");
    return result;
  }

  std::vector<Position> chosen_of(const DecodeContext& context) {
    if (!wants_) return revises_ ? generated_positions(context) : Decoder::wanted(context);
    const Gil gil;
    const Position begin = std::max(context.window.begin, context.canvas.prompt_end());
    std::vector<Position> all(static_cast<std::size_t>(context.window.end - begin));
    std::iota(all.begin(), all.end(), begin);
    const nb::object chosen = self_.attr("wanted")(context_of(context, previous_));
    std::vector<Position> result;
    for (const nb::handle one : items(chosen, all, "wanted()")) {
      const Position position = position_of(one, "wanted()");
      if (!std::ranges::binary_search(all, position))
        refuse(fmt::format("position {} is not between {} and {}", position, begin, context.window.end), "wanted()",
               "choose among the positions of context.window that are not the prompt's");
      result.push_back(position);
    }
    std::ranges::sort(result);
    if (const auto twice = std::ranges::adjacent_find(result); twice != result.end())
      refuse(fmt::format("position {} was returned twice", *twice), "wanted()", "");
    const bool masks = context.canvas.masked_count(context.window) > 0;
    if (result.empty() || (masks && std::ranges::none_of(result, [&](Position p) { return context.canvas.masked(p); })))
      refuse(masks ? "it returned no masked position" : "it returned no position", "wanted()",
             "a pass decides at least one: return all positions that decode() may choose");
    return result;
  }

  bool holds_window(const DecodeContext& context) const override {
    if (!holds_) return false;
    const Gil gil;
    if (!is_true(self_.attr("holds")(context_of(context, previous_)))) return false;
    if (held_ != context.window.begin) held_ = context.window.begin, passes_held_ = 0;
    if (passes_held_++ >= kMostPassesOfWindow)
      refuse(fmt::format("it held a window without masks {} times", kMostPassesOfWindow), "holds()",
             "let the answer end");
    return true;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const Gil gil;
    if (logits_ && std::ranges::any_of(candidates, [](const Candidate& one) { return one.logits.empty(); }))
      raise({ErrorCode::kUnsupported, "this backend returns no logits", "the decoder '" + name_ + "'",
             "set logits = False in the class, or give backend='cpu'"});
    const auto columns = std::make_shared<Candidates>(columns_of(candidates, static_cast<std::size_t>(top_), logits_));
    Context told = context_of(context, previous_);
    if (shadows_)
      told.shadows = std::make_shared<Candidates>(columns_of(context.shadows, static_cast<std::size_t>(top_), logits_));
    const nb::object chosen = self_.attr("decode")(std::move(told), columns);
    previous_ = columns;
    std::vector<Position> positions;
    for (const Candidate& candidate : candidates) positions.push_back(candidate.position);
    std::vector<Edit> edits;
    for (const nb::handle one : items(chosen, positions, "decode()"))
      edits.push_back(edit_of(one, context, candidates));
    check_distinct(edits);
    check_progress(context, edits);
    return edits;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const char* method, const std::string& hint) const {
    raise({ErrorCode::kUsage, what, std::string(method) + " of the decoder '" + name_ + "'", hint});
  }

  bool overrides(const char* method) const { return overrides(self_.type(), method); }
  static bool overrides(const nb::handle& type, const char* method) {
    const nb::object base = nb::module_::import_("dllm.decoder").attr("Decoder");
    return !type.attr(method).is(base.attr(method));
  }
  static bool shadows_of(const nb::handle& type) { return overrides(type, "shadowed"); }

  /// What was returned, as a list. A boolean array, or a list of bools, is a mask over `among`.
  nb::list items(const nb::object& chosen, const std::vector<Position>& among, const char* method) const {
    if (chosen.is_none())
      refuse("it returned None", method,
             "is a return missing? Return positions; [] leaves the choice to the engine, which commits the best");
    nb::list all;
    try {
      all = nb::list(chosen);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      refuse("it returned " + nb::cast<std::string>(nb::repr(chosen)), method,
             "return positions, or pairs of a position and a token");
    }
    std::size_t bools = 0;
    for (const nb::handle one : all) bools += is_bool(one) ? 1 : 0;
    if (bools == 0) return all;
    if (bools != all.size())
      refuse("it returned positions and truth values", method, "return positions, or a mask over all of them");
    if (all.size() != among.size())
      refuse(fmt::format("it returned a mask of {} for {} positions", all.size(), among.size()), method,
             "a mask has one truth value per candidate; or return positions");
    nb::list positions;
    for (std::size_t i = 0; i < among.size(); ++i)
      if (is_true(all[i])) positions.append(among[i]);
    return positions;
  }

  static bool is_true(const nb::object& value) {
    const int truth = PyObject_IsTrue(value.ptr());
    if (truth < 0) throw nb::python_error();
    return truth != 0;
  }

  /// NumPy's scalars have a dtype.
  static bool is_bool(const nb::handle& one) {
    if (nb::isinstance<nb::bool_>(one)) return true;
    return nb::hasattr(one, "dtype") && nb::cast<std::string>(one.attr("dtype").attr("kind")) == "b";
  }

  Position position_of(const nb::handle& one, const char* method) const {
    Position position = -1;
    if (!nb::try_cast(nb::hasattr(one, "item") ? nb::object(one.attr("item")()) : nb::borrow(one), position))
      refuse("it returned " + nb::cast<std::string>(nb::repr(one)), method,
             "return positions, or pairs of a position and a token");
    return position;
  }

  /// A position, a position and a token, a dllm.Revise or a dllm.Remask.
  Edit edit_of(const nb::handle& chosen, const DecodeContext& context, std::span<const Candidate> candidates) const {
    const Canvas& canvas = context.canvas;
    const auto kind = nb::hasattr(chosen, "kind") ? nb::cast<std::string>(chosen.attr("kind")) : std::string("commit");
    Position position = -1;
    std::optional<TokenId> token;
    std::pair<Position, TokenId> both;
    if (kind != "commit") {
      position = position_of(chosen.attr("position"), "decode()");
      if (nb::hasattr(chosen, "token") && !chosen.attr("token").is_none())
        token = position_of(chosen.attr("token"), "decode()");
    } else if (nb::try_cast(chosen, both)) {
      position = both.first;
      token = both.second;
    } else {
      position = position_of(chosen, "decode()");
    }
    const Candidate* const found = candidate_at(context, candidates, position);
    if (found == nullptr)
      refuse(fmt::format("position {} is no candidate", position), "decode()", "choose among candidates.position");
    if (kind != "commit" && !revises_)
      refuse("it changes decided tokens", "decode()", "set revises = True in the class");
    if (canvas.masked(position) != (kind == "commit"))
      refuse(fmt::format("position {} is {}", position, canvas.masked(position) ? "a mask" : "decided already"),
             "decode()",
             canvas.masked(position) ? "commit it: return the position" : "dllm.Revise and dllm.Remask change it");
    return kind == "remask" ? Edit{position, -1, EditKind::kRemask, found->confidence}
                            : with_token(*found, token, kind == "commit" ? EditKind::kCommit : EditKind::kRevise);
  }

  Edit with_token(const Candidate& candidate, std::optional<TokenId> token, EditKind kind) const {
    Edit edit = commit(candidate);
    edit.kind = kind;
    if (!token || *token == candidate.token) return edit;
    const auto known = std::ranges::find(candidate.top, *token, &TopToken::token);
    if (known == candidate.top.end())
      refuse(fmt::format("token {} is not among the best of position {}", *token, candidate.position), "decode()",
             "choose among candidates.top_tokens; top_tokens = N of the class says how many there are");
    edit.token = *token;
    edit.confidence *= std::exp(static_cast<double>(known->logit) - static_cast<double>(candidate.logit));
    return edit;
  }

  void check_distinct(std::vector<Edit>& edits) const {
    std::ranges::sort(edits, {}, &Edit::position);
    const auto twice = std::ranges::adjacent_find(edits, {}, &Edit::position);
    if (twice != edits.end()) refuse(fmt::format("position {} was returned twice", twice->position), "decode()", "");
  }

  /// A decoder may take back more than it commits, but not without end.
  void check_progress(const DecodeContext& context, const std::vector<Edit>& edits) {
    acted_ = revises_ && !edits.empty();
    if (acted_ && context.window_step >= kMostPassesOfWindow)
      refuse(fmt::format("it took {} passes over one window", context.window_step), "decode()",
             "commit more positions than are masked again, so that the answer ends");
  }

  nb::object self_;
  std::string name_;
  std::int32_t top_;
  bool revises_, logits_, shadows_, wants_, holds_;
  bool acted_ = false;  ///< in the last pass
  std::vector<Position> asked_;
  std::shared_ptr<Candidates> previous_;  ///< of the pass before
  mutable Position held_ = -1;            ///< begin of the window that was held last
  mutable int passes_held_ = 0;
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
  const MethodTraits traits = PythonDecoder::declared(type);
  const auto make = [kept, name, rows, traits](const OptionMap& options, const MethodContext& context) {
    const Gil gil;
    nb::dict given;
    for (const auto& row : rows) given[row.info.key.c_str()] = to_python(*row.load(options));
    nb::object self = nb::borrow(kept)(**given);
    self.attr("length") = context.length;
    self.attr("block_length") = context.block_length;
    auto decoder = std::make_unique<PythonDecoder>(std::move(self), name);
    decoder->check_declared(traits);
    return decoder;
  };
  take(add_decoder(declare_method<Decoder, OptionMap>(name, nb::cast<std::string>(type.attr("meaning")), rows, make)
                       .always(traits)));
}

}  // namespace

void bind_decoders(nb::module_& module) {
  bind_candidates(module);
  module.def("register_decoder", &register_class);
}

}  // namespace dllm::python

// dllm.Answer and dllm.Step.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <type_traits>

#include "arrays.h"
#include "bindings.h"
#include "dllm/generate.h"
#include "engine/trace.h"
#include "options.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

/// The fields of an answer but its options, by the names that Python gives them: f(name, field) for each.
template <class Answer, class F>
void each_field(Answer& answer, F f) {
  f("text", answer.text);
  f("prompt_ids", answer.prompt_ids);
  f("ids", answer.ids);
  f("commit_step", answer.commit_step);
  f("confidence", answer.confidence);
  f("stop_text", answer.stop_text);
  f("hash", answer.hash);
}

template <class Stats, class F>
void each_stat(Stats& stats, F f) {
  f("prompt_tokens", stats.prompt_tokens);
  f("answer_tokens", stats.answer_tokens);
  f("committed_tokens", stats.committed_tokens);
  f("steps", stats.steps);
  f("nfe", stats.nfe);
  f("forced", stats.forced);
  f("rounds", stats.rounds);
  f("round_tokens", stats.round_tokens);
  f("rows_forwarded", stats.rows_forwarded);
  f("rows_scored", stats.rows_scored);
  f("cached_tokens", stats.cached_tokens);
  f("seconds", stats.seconds);
}

Dict stats_dict(const GenerateStats& stats) {
  Dict result;
  each_stat(stats, [&](const char* name, const auto& value) { result[name] = nb::cast(value); });
  return result;
}

Dict answer_dict(const Generation& answer) {
  Dict result;
  each_field(answer, [&](const char* name, const auto& value) { result[name] = nb::cast(value); });
  result["finish"] = nb::cast(std::string(finish_name(answer.finish)));
  result["options"] = to_dict(answer.options);
  result["stats"] = stats_dict(answer.stats);
  return result;
}

/// From answer_dict(), for pickles. Options come back as they are listed, not as the engine's own structure.
Generation answer_from(const nb::dict& state) {
  Generation answer;
  each_field(answer, [&](const char* name, auto& value) {
    value = nb::cast<std::remove_reference_t<decltype(value)>>(state[name]);
  });
  const nb::dict stats = nb::cast<nb::dict>(state["stats"]);
  each_stat(answer.stats, [&](const char* name, auto& value) {
    value = nb::cast<std::remove_reference_t<decltype(value)>>(stats[name]);
  });
  const auto finish = nb::cast<std::string>(state["finish"]);
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled})
    if (finish_name(reason) == finish) answer.finish = reason;
  for (const auto& [key, value] : nb::cast<nb::dict>(state["options"]))
    answer.options.values.emplace_back(nb::cast<std::string>(key), take(to_value(value, "options")));
  return answer;
}

/// The same words, decided in the same way; not how long it took.
bool same_answer(const Generation& a, const Generation& b) {
  return a.text == b.text && a.prompt_ids == b.prompt_ids && a.ids == b.ids && a.commit_step == b.commit_step &&
         a.confidence == b.confidence && a.finish == b.finish && a.stop_text == b.stop_text;
}

void bind_stats(nb::module_& module) {
  nb::class_<GenerateStats>(module, "Stats", "Time and work of an answer.")
      .def("to_dict", &stats_dict, nb::sig("def to_dict(self) -> dict[str, typing.Any]"))
      .def_ro("prompt_tokens", &GenerateStats::prompt_tokens)
      .def_ro("answer_tokens", &GenerateStats::answer_tokens, "up to and including the stop token")
      .def_ro("committed_tokens", &GenerateStats::committed_tokens)
      .def_ro("steps", &GenerateStats::steps)
      .def_ro("nfe", &GenerateStats::nfe, "forward passes")
      .def_ro("forced", &GenerateStats::forced, "steps in which only the progress rule committed a token")
      .def_ro("rounds", &GenerateStats::rounds, "drafts that were verified")
      .def_ro("round_tokens", &GenerateStats::round_tokens)
      .def_ro("rows_forwarded", &GenerateStats::rows_forwarded)
      .def_ro("rows_scored", &GenerateStats::rows_scored)
      .def_ro("cached_tokens", &GenerateStats::cached_tokens, "of the prompt, computed for earlier requests")
      .def_ro("seconds", &GenerateStats::seconds);
}

void bind_answer(nb::module_& module) {
  nb::class_<Generation>(module, "Answer", "A finished generation.")
      .def_ro("text", &Generation::text, "without control tokens, up to the first stop token")
      .def_ro("prompt_ids", &Generation::prompt_ids)
      .def_ro("ids", &Generation::ids, "of every generated position; undecided ones hold the mask's id, or -1")
      .def_ro("commit_step", &Generation::commit_step, "forward pass, from 0, that decided each position; -1: none")
      .def_ro("confidence", &Generation::confidence, "of each position when it was decided")
      .def_prop_ro(
          "finish", [](const Generation& answer) { return std::string(finish_name(answer.finish)); },
          "'stop', 'length' or 'cancelled'")
      .def_ro("stop_text", &Generation::stop_text)
      .def_ro("stats", &Generation::stats)
      .def_prop_ro(
          "options", [](const Generation& answer) { return to_dict(answer.options); }, "as they were used")
      .def_ro("hash", &Generation::hash, "of the ids, to compare answers")
      .def("to_dict", &answer_dict, nb::sig("def to_dict(self) -> dict[str, typing.Any]"),
           "everything above, as numbers, texts, lists and dicts: json.dumps() takes it")
      .def("__getstate__", &answer_dict, nb::sig("def __getstate__(self) -> dict[str, typing.Any]"))
      .def(
          "__setstate__",
          [](Generation& answer, const nb::dict& state) { new (&answer) Generation(answer_from(state)); },
          nb::sig("def __setstate__(self, state: dict[str, typing.Any]) -> None"))
      .def(
          "__eq__",
          [](const Generation& answer, const nb::object& other) -> nb::object {
            if (!nb::isinstance<Generation>(other)) return nb::borrow(Py_NotImplemented);
            return nb::bool_(same_answer(answer, nb::cast<const Generation&>(other)));
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object) -> bool"),
          "the same words, decided in the same way; times do not count")
      .def("__hash__", [](const Generation& answer) { return static_cast<Py_hash_t>(answer.hash >> 2); })
      .def("__str__", [](const Generation& answer) { return answer.text; })
      .def("__repr__", [](const Generation& answer) {
        return "<dllm.Answer " + nb::cast<std::string>(nb::repr(nb::cast(answer.text))) + ", " +
               std::to_string(answer.stats.nfe) + " passes, finish '" + std::string(finish_name(answer.finish)) + "'>";
      });
}

void bind_step(nb::module_& module) {
  nb::class_<StepEvent>(module, "Step", "The canvas after one step.")
      .def_ro("step", &StepEvent::step, "number of the step, from 0")
      .def_ro("nfe", &StepEvent::nfe, "forward passes so far")
      .def_prop_ro(
          "window", [](const StepEvent& e) { return std::pair(e.block_begin, e.block_end); },
          "positions that were decoded: (begin, end)")
      .def_ro("prompt_length", &StepEvent::prompt_length)
      .def_ro("masks_left", &StepEvent::masked)
      .def_ro("text", &StepEvent::text, "the beginning of the answer that will not change any more")
      .def_prop_ro(
          "tokens",
          [](const StepEvent& e) {
            return column<std::int32_t>(e.canvas, [](const CanvasCell& c) { return c.token; });
          },
          nb::rv_policy::move, "int32 ids of all positions, the prompt's included")
      .def_prop_ro(
          "masked",
          [](const StepEvent& e) { return column<bool>(e.canvas, [](const CanvasCell& c) { return c.masked; }); },
          nb::rv_policy::move, "which positions are masked")
      .def_prop_ro(
          "changed",
          [](const StepEvent& e) { return column<bool>(e.canvas, [](const CanvasCell& c) { return c.changed; }); },
          nb::rv_policy::move, "which positions this step changed")
      .def_prop_ro(
          "confidence",
          [](const StepEvent& e) { return column<double>(e.canvas, [](const CanvasCell& c) { return c.confidence; }); },
          nb::rv_policy::move, "of each position at its commit; 1 for the prompt")
      .def("__repr__", [](const StepEvent& e) {
        return "<dllm.Step " + std::to_string(e.step) + ", " + std::to_string(e.masked) + " masks left>";
      });
}

}  // namespace

void bind_answers(nb::module_& module) {
  bind_stats(module);
  bind_answer(module);
  bind_step(module);
}

}  // namespace dllm::python

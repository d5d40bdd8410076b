// dllm.Answer and dllm.Step.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bindings.h"
#include "dllm/generate.h"
#include "engine/trace.h"
#include "options.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

void bind_stats(nb::module_& module) {
  nb::class_<GenerateStats>(module, "Stats", "Time and work of an answer.")
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

}  // namespace

void bind_answers(nb::module_& module) {
  bind_stats(module);
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
      .def("__str__", [](const Generation& answer) { return answer.text; })
      .def("__repr__", [](const Generation& answer) {
        return "<dllm.Answer " + nb::cast<std::string>(nb::repr(nb::cast(answer.text))) + ", " +
               std::to_string(answer.stats.nfe) + " passes, finish '" + std::string(finish_name(answer.finish)) + "'>";
      });
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

}  // namespace dllm::python

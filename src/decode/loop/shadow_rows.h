#pragma once

#include <vector>

#include "backend/scores.h"
#include "backend/step_plan.h"
#include "decode/canvas.h"
#include "decode/decoder/decoder.h"
#include "decode/loop/denoise_pass.h"

namespace dllm {

/// Adds shadow rows for pass.shadowed to a plan that is otherwise finished, and fills pass.score_of_shadow. Each row
/// sees what the plan's rows see, without the position that it predicts: it reads the mask there, or, with `shift` (see
/// ModelDesc::logit_shift), the token of the position before.
void add_shadows(const Canvas& canvas, Position shift, DenoisePass& pass, StepPlan& plan);

/// Asks for the logit of the canvas's token at each of them, after all other queries.
void query_shadows(const Canvas& canvas, const DenoisePass& pass, ScoreRequest& request);

/// Their predictions. Borrows the scores.
std::vector<Candidate> shadows_of(const DenoisePass& pass, const Scores& scores);

}  // namespace dllm

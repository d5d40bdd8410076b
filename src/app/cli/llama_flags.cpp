#include "app/cli/llama_flags.h"

#include <algorithm>
#include <vector>

namespace dllm::app {
namespace {

struct Advice {
  std::vector<std::string_view> flags;
  std::string_view text;
};

/// Common flags of llama.cpp's common/arg.cpp. Those that dllm also has never get here.
const std::vector<Advice>& advices() {
  static const std::vector<Advice> all = {
      {{"-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu", "-dev", "-ot", "--override-tensor",
        "-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe", "-nkvo", "--no-kv-offload"},
       "-ngl N puts the last N layers on one GPU, and --device NAME says on which; the others run on this processor"},
      {{"-b", "--batch-size", "-ub", "--ubatch-size"},
       "a step is as large as its rows, and dllm chooses how to cut it; leave it out"},
      {{"-fa", "--flash-attn"}, "attention always works tile by tile with an online softmax; leave it out"},
      {{"--mlock"}, "weights are packed into memory of the process; --weight-cache FILE maps them instead"},
      {{"--no-mmap", "--mmap"}, "files are mapped, and released as they are packed; see --weight-cache"},
      {{"-ctk", "--cache-type-k", "-ctv", "--cache-type-v"}, "give --cache-type, which is for K and V"},
      {{"--repeat-last-n", "--dry-multiplier"}, "give --repeat-penalty: it looks at the whole prompt and answer"},
      {{"--typical", "--xtc-probability", "--mirostat", "--samplers", "--sampling-seq"},
       "there is no such sampler; --temp, --top-k, --top-p and --min-p change what is drawn"},
      {{"--grammar", "--grammar-file"}, "give --json-schema, or --regex: context-free grammars are not supported"},
      {{"--jinja", "--no-jinja"}, "chat templates are always rendered; --raw leaves them out"},
      {{"-cnv", "--conversation"}, "dllm chat is the conversation, dllm run the single answer"},
      {{"-i", "--interactive", "-if", "--interactive-first"}, "give dllm chat"},
      {{"-st", "--single-turn"}, "give dllm run"},
      {{"-mli", "--multiline-input"}, "in dllm chat, \"\"\" begins and ends a message of several lines"},
      {{"-tb", "--threads-batch"}, "give -t: there is one number of threads"},
      {{"-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict", "--prio", "--poll"},
       "start dllm under taskset, chrt or nice"},
      {{"--numa"}, "start dllm under numactl"},
      {{"--ignore-eos"}, "give --suppress-eos, or --exact-length"},
      {{"--keep", "--context-shift", "--no-context-shift"},
       "dllm chat drops the oldest turns when the context is full"},
      {{"--lora-scaled"}, "give --lora FILE:SCALE"},
      {{"--control-vector"}, "control vectors are not supported"},
      {{"--draft", "--draft-n", "--spec-type"},
       "--draft-model FILE names a drafter, and --draft-max bounds its drafts; a diffusion model drafts for itself "
       "(--window lookahead, --mode self-speculation)"},
      {{"-mu", "--model-url"}, "give -hf ORG/MODEL, or download the file and give -m"},
      {{"--rope-freq-base"}, "give --rope-scaling ntk with --rope-scale N, which makes the base larger"},
      {{"--rope-freq-scale"}, "give --rope-scaling linear with --rope-scale N, which is one divided by it"},
      {{"--yarn-orig-ctx"}, "give --rope-original-context"},
      {{"--yarn-ext-factor", "--yarn-attn-factor", "--yarn-beta-slow", "--yarn-beta-fast"},
       "--rope-scaling yarn takes the values of the paper; others are read from the model's file"},
      {{"--diffusion-cfg-scale"}, "give --cfg-scale"},
      {{"--diffusion-add-gumbel-noise"}, "noise is added whenever --temp is above 0"},
      {{"--log-disable", "--log-file", "--log-colors", "-lv", "--verbosity"},
       "results go to stdout and all else to stderr; NO_COLOR=1 switches colours off"},
      {{"--no-display-prompt"}, "the prompt is never printed; leave it out"},
      {{"-e", "--escape"}, "backslashes are text; in bash, $'...' makes a newline"},
      {{"--no-warmup", "--warmup"}, "there is no warm-up; leave it out"},
      {{"--port", "--host", "--api-key"}, "dllm serve is the server"},
  };
  return all;
}

}  // namespace

std::string llama_cpp_advice(std::string_view flag) {
  for (const Advice& advice : advices())
    if (std::ranges::find(advice.flags, flag) != advice.flags.end()) return std::string(advice.text);
  return {};
}

}  // namespace dllm::app

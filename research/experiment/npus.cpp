// Experiments on the datacentre and small NPUs of DART and (d-)PLENA: blocks, and sampling in them.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/npu/timing_flags.h"
#include "base/try.h"
#include "experiment/experiments.h"
#include "npu_compiler/analytic/gpu.h"
#include "npu_compiler/compiler/block_cost.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"
#include "npu_core/device/profile.h"
#include "npu_core/sampling/kernel.h"

namespace dllm::app {
namespace {

/// With the names that columns have: two cards are called H100, and one is 1.4 times as fast as the other.
struct ComparedGpu {
  const char *profile, *name;
};
constexpr ComparedGpu kGpus[] = {{"a6000", "A6000"}, {"h100-pcie", "H100 PCIe"}, {"h100-sxm", "H100 SXM"}};

/// One block of a model on a device.
struct DeviceBlock {
  npu::Workload workload;
  Graph warm, refine;
  npu::BlockCost cost;
};

/// Logits go to memory, where the sampling programs read them. Errors: also those of models that do not fit.
Expected<DeviceBlock> block_on(const npu::Device& device, const npu::ModelShape& shape) {
  npu::Workload workload;
  workload.fused_head = false;
  DLLM_TRY(const npu::BlockParts parts, npu::check_feasible(device, shape, workload));
  DLLM_TRY(const double gbps, npu::achieved_bandwidth(device));
  DLLM_TRY(const npu::CostModel model, npu::CostModel::create(device, gbps));
  DeviceBlock block{workload,
                    shape.architecture->build(shape.desc, npu::warm_shape(workload)),
                    shape.architecture->build(shape.desc, npu::refine_shape(workload)),
                    {}};
  npu::StepTimes times(shape);
  DLLM_TRY(block.cost, npu::evaluate_block(times, model, block.warm, block.refine, workload, parts));
  return block;
}

/// How the sampling of a step is programmed.
struct SamplingCase {
  const char *name, *logits;  ///< second: number format in memory; null: the published device and its own
};
constexpr SamplingCase kLadder[] = {{"published, serial", nullptr},
                                    {"one pass, BF16", "bf16"},
                                    {"one pass, MXFP8", "mxfp8_e4m3:32:ocp"},
                                    {"one pass, MXFP4", "mxfp4_e2m1:32:ocp"}};

Expected<npu::Device> device_of(const std::string& name, const SamplingCase& how) {
  if (how.logits == nullptr) return npu::load_device(name, npu::published_sampling_overrides());
  return npu::load_device(name, {{"numerics.logits", how.logits}});
}

/// Seconds, simulated.
Expected<double> sampling_seconds(npu::Device device, const SamplingCase& how, const npu::Workload& workload,
                                  std::int64_t vocab) {
  const bool published = how.logits == nullptr;
  TimingFlags issue;
  issue.options.issue = published ? npu::IssueMode::kSerial : npu::IssueMode::kOverlapped;
  issue.options.compat_scale64 = published;
  DLLM_CHECK_OK(issue.resolve(device));
  DLLM_TRY(
      const npu::SamplingKernel kernel,
      npu::build_sampling(device, {.batch = workload.batch,
                                   .block = workload.block,
                                   .vocab = vocab,
                                   .form = published ? npu::SamplingForm::kPublished : npu::SamplingForm::kOnePass}));
  DLLM_TRY(const npu::TimingReport report, npu::simulate(device, kernel.machine, kernel.program, issue.options));
  return report.seconds(device);
}

/// Seconds of sampling and of the refinement step that it is part of.
struct SampledStep {
  double sampling = 0, step = 0;
};
Expected<SampledStep> sampled_step(const std::string& name, const SamplingCase& how, const npu::ModelShape& shape) {
  DLLM_TRY(const npu::Device device, device_of(name, how));
  const bool published = how.logits == nullptr;
  DLLM_TRY(const npu::Device shipped, npu::load_device(name));
  DLLM_TRY(const DeviceBlock block, block_on(published ? shipped : device, shape));
  DLLM_TRY(const double sampling, sampling_seconds(device, how, block.workload, shape.desc.vocab));
  const double serial = block.cost.refine.cost.total.serial / (device.clock.ghz * 1e9);
  return SampledStep{sampling, (published ? serial : block.cost.refine.seconds) + sampling};
}

std::string workload_text(const Lab& lab) {
  const npu::Workload w;
  return fmt::format(
      "Blocks of {} x {} positions in a context of {}, {} steps with a dual cache, logits to memory; models: {} and "
      "llada-moe. Warm and refinement steps by the priced schedule of the programs that are compiled, in their parts "
      "(npu-analytic.md compares it with the simulator), sampling programs simulated.",
      w.batch, w.block, w.context, w.steps, lab.inputs().shape);
}

/// A row of block-phases.
struct PhasedBlock {
  std::vector<double> cells;
  double speed[std::size(kGpus)] = {}, economy[std::size(kGpus)] = {};  ///< tokens per second and per joule
};
Expected<PhasedBlock> phased_block(const std::string& name, const npu::ModelShape& shape) {
  const SamplingCase& how = kLadder[2];
  DLLM_TRY(const npu::Device device, device_of(name, how));
  DLLM_TRY(const DeviceBlock block, block_on(device, shape));
  DLLM_TRY(const double sampling, sampling_seconds(device, how, block.workload, shape.desc.vocab));
  const npu::BlockCost& cost = block.cost;
  const auto steps = static_cast<double>(block.workload.steps);
  const double refining = (steps - 1) * cost.refine.seconds, all = cost.seconds + steps * sampling;
  const double tokens = static_cast<double>(block.workload.batch * block.workload.block) / all;
  PhasedBlock result{.cells = {cost.warm.seconds * 1e3, cost.refine.seconds * 1e3, sampling * 1e3, all * 1e3,
                               100 * cost.warm.seconds / all, 100 * refining / all, 100 * steps * sampling / all}};
  for (const npu::PhaseCost* phase : {&cost.warm, &cost.refine}) {
    const npu::OperatorCost& sum = phase->cost.total;
    for (const double cycles : {sum.matrix, sum.vector, sum.memory})
      result.cells.push_back(100 * cycles / (device.clock.ghz * 1e9) / phase->seconds);
  }
  for (std::size_t g = 0; g < std::size(kGpus); ++g) {
    DLLM_TRY(const npu::GpuProfile profile, npu::load_gpu(kGpus[g].profile));
    DLLM_TRY(const npu::GpuCost gpu, npu::evaluate_gpu(profile, block.warm, block.refine, block.workload));
    result.speed[g] = tokens / gpu.tokens_per_second;
    result.economy[g] = cost.tokens_per_joule / gpu.tokens_per_joule;
  }
  result.cells.push_back(tokens);
  result.cells.insert(result.cells.end(), std::begin(result.speed), std::end(result.speed));
  result.cells.insert(result.cells.end(), std::begin(result.economy), std::end(result.economy));
  return result;
}

struct Span {
  double least = 1e300, most = 0;
  void add(double value) { least = std::min(least, value), most = std::max(most, value); }
};

/// What the paper claims, and what it would take.
std::string block_verdict(const Span& warm_share, const PhasedBlock& best, const std::string& best_on,
                          const std::string& model) {
  std::string text = fmt::format("the warm step is {:.0f} to {:.0f} % of a block of 32 steps. With {}, {} has",
                                 warm_share.least, warm_share.most, model, best_on);
  for (std::size_t g = 0; g < std::size(kGpus); ++g)
    text +=
        fmt::format("{} {:.2f} times the tokens per second of the {}'s roofline and {:.1f} times its tokens per joule",
                    g == 0                     ? ""
                    : g + 1 < std::size(kGpus) ? ","
                                               : ", and",
                    best.speed[g], kGpus[g].name, best.economy[g]);
  text += fmt::format(
      ". The paper has 4.91 and 23.3 times over the A6000, and 2.06 and 15.5 times over an H100, without saying which. "
      "{}: over either H100 the device is {} than the roofline. Real GPUs, which the paper measured, stay below their "
      "rooflines: 2.06 would need an H100 PCIe at {:.0f} %, or an H100 SXM at {:.0f} %, of its peaks. The size of "
      "DART's array is not published, and the energy of sampling is not counted here.",
      best.speed[1] < 2.06 ? "Contradicted for the H100" : "Reproduced for the H100",
      best.speed[1] < 1 && best.speed[2] < 1 ? "slower" : "not slower", 100 * best.speed[1] / 2.06,
      100 * best.speed[2] / 2.06);
  return text;
}

}  // namespace

Expected<Figure> sampling_share(Lab& lab) {
  Figure figure{
      .name = "sampling-share",
      .title = "Sampling in a step, by the format of the logits",
      .setting = workload_text(lab) +
                 " Published kernel: one instruction at a time, d-PLENA's memory and MXFP8 in blocks of 8, in a step "
                 "that runs one instruction at a time too. One pass: our program on the device as it is; the format is "
                 "that of the logits in memory, the vector unit computes in BF16.",
      .claim =
          "sampling is up to 71 % of a step on a GPU with FP64, and less than 10 % on the NPU with MXFP8 (DART); 3.41, "
          "1.79 and 0.99 ms with 512, 1024 and 2048 lanes (d-PLENA, Tab. II).",
      .columns = {"model", "device", "sampling", "sampling ms", "step ms", "share of the step %"},
      .x_name = "device",
      .y_name = "share of a refinement step, %",
      .log_y = true};
  for (const char* name : kNpus) figure.x_labels.emplace_back(name);
  Span shares[std::size(kLadder)];
  std::string published;
  const std::string models[] = {lab.inputs().shape, "llada-moe"};
  std::size_t part = 0;
  for (const std::string& name : models) {
    DLLM_TRY(const npu::ModelShape shape, npu::load_model_shape(name));
    const std::size_t first = figure.series.size();
    for (const SamplingCase& how : kLadder) figure.series.push_back({fmt::format("{}: {}", name, how.name), {}});
    for (std::size_t d = 0; d < std::size(kNpus); ++d) {
      for (std::size_t i = 0; i < std::size(kLadder); ++i) {
        DLLM_CHECK_OK(lab.begin_part(part++, std::size(models) * std::size(kNpus) * std::size(kLadder)));
        DLLM_TRY(const SampledStep found, sampled_step(kNpus[d], kLadder[i], shape));
        const double share = 100 * found.sampling / found.step;
        figure.rows.push_back({name, kNpus[d], kLadder[i].name, found.sampling * 1e3, found.step * 1e3, share});
        figure.series[first + i].points.emplace_back(static_cast<double>(d), share);
        shares[i].add(share);
        if (i == 0 && d < 3 && name == models[0])
          published += fmt::format("{}{:.2f}", published.empty() ? "" : ", ", found.sampling * 1e3);
      }
    }
  }
  figure.verdict = fmt::format(
      "{} for the NPU: with MXFP8 sampling is {:.2f} to {:.1f} % of a step, with BF16 {:.2f} to {:.1f} %, with MXFP4 "
      "{:.2f} to {:.1f} %{}. The published kernel takes {} ms with {}, {} and {}, and {:.1f} to {:.1f} % of a serial "
      "step. Cannot be made here: the GPU's share with FP64, as neither our NPUs nor our rooflines of GPUs have that "
      "format.",
      shares[2].most < 10 ? "reproduced" : "not reproduced", shares[2].least, shares[2].most, shares[1].least,
      shares[1].most, shares[3].least, shares[3].most,
      shares[3].most > 0.98 * shares[2].most ? ", no less: the front end decides there, not the traffic" : "",
      published, kNpus[0], kNpus[1], kNpus[2], shares[0].least, shares[0].most);
  return figure;
}

Expected<Figure> block_phases(Lab& lab) {
  Figure figure{
      .name = "block-phases",
      .title = "Warm step, refinement steps and sampling of a block",
      .setting = workload_text(lab) +
                 " A block is one warm step over the context and 31 refinement steps over the block, each with its "
                 "sampling (one pass, MXFP8). Units: how much of the step each works, by the sums over operators. "
                 "GPUs: rooflines in BF16 at full peaks, sampling beyond reading the logits not counted.",
      .claim =
          "T_block = T_warm + (steps - 1) T_refine (DART, d-PLENA); up to 4.91 times the tokens per second of an A6000 "
          "and 2.06 of an H100, at up to 23.3 and 15.5 times the tokens per joule (DART).",
      .columns = {"model", "device", "warm ms", "refine ms", "sampling ms", "block ms", "warm %", "refine %",
                  "sampling %", "matrix %, warm", "vector %, warm", "memory %, warm", "matrix %, refine",
                  "vector %, refine", "memory %, refine", "tokens/s"},
      .x_name = "device",
      .y_name = "ms",
      .log_y = true};
  for (const char* end : {"", " per J"})
    for (const ComparedGpu& gpu : kGpus) figure.columns.push_back(fmt::format("x {}{}", gpu.name, end));
  for (const char* name : kNpus) figure.x_labels.emplace_back(name);
  Span warm_share;
  PhasedBlock best;
  std::string best_on;
  const std::string models[] = {lab.inputs().shape, "llada-moe"};
  for (const std::string& name : models) {
    DLLM_TRY(const npu::ModelShape shape, npu::load_model_shape(name));
    const std::size_t first = figure.series.size();
    for (const char* what : {"warm step", "refinement step", "sampling"})
      figure.series.push_back({fmt::format("{}: {}", name, what), {}});
    for (std::size_t d = 0; d < std::size(kNpus); ++d) {
      DLLM_CHECK_OK(lab.begin_part(figure.rows.size(), std::size(models) * std::size(kNpus)));
      DLLM_TRY(PhasedBlock found, phased_block(kNpus[d], shape));
      figure.rows.push_back({name, kNpus[d]});
      figure.rows.back().insert(figure.rows.back().end(), found.cells.begin(), found.cells.end());
      for (std::size_t i = 0; i < 3; ++i)
        figure.series[first + i].points.emplace_back(static_cast<double>(d), found.cells[i]);
      warm_share.add(found.cells[4]);
      if (name == models[0] && found.speed[0] > best.speed[0]) best = std::move(found), best_on = kNpus[d];
    }
  }
  figure.verdict = block_verdict(warm_share, best, best_on, models[0]);
  return figure;
}

}  // namespace dllm::app

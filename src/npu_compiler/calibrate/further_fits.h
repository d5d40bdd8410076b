#pragma once

#include <vector>

#include "npu_compiler/calibrate/calibrate.h"

namespace dllm::npu {

/// A product by itself, without the operator that makes its input.
Graph product_graph(const Measurements::Gemm& product);

/// The fitted value as a profile has it, in six digits, so that the written profile is the fitted one.
double six_digits(double value);

/// host.shared_gbps from steps that the device ran while the host repeated steps of its own: the one value with the
/// least squares of relative residuals, all other keys as they are in `result`, which gets the key and the residuals.
/// Errors: those of StepTimer; kUnsupported without a described host.
Expected<void> fit_shared_memory(const StepTimer::GraphFactory& graph,
                                 const std::vector<Measurements::Shared>& measured, Calibration& result);

/// The keys of [energy] and the host's watts from measured energies, at the times of `result`'s device. Energies are
/// linear in the keys. Keys whose parts are proportional in every measurement (traffic: reads, writes, activations and
/// interfaces; what is taken per second) get one common factor, and so do others that the measurements do not tell
/// apart: the pair that is nearest to proportional is joined until the rest is determined. Keys that are 0 stay 0.
/// Errors: as above.
Expected<void> fit_energy(const StepTimer::GraphFactory& graph, const Measurements& measured, Calibration& result);

}  // namespace dllm::npu

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "app/bench/bench.h"
#include "engine/backends.h"

namespace dllm::app {

/// A model of which only the shape counts.
struct ShapeModel {
  std::string name;
  ModelDesc desc;
  std::shared_ptr<const Model> model;  ///< of a file; null: a shape without weights
  GraphOfStep graph;

  /// `name`: of an outline that `backend` knows (`llada-8b`, a .toml file), or a model's file. An outline gets a mask,
  /// tokens that end answers, and the context of the largest recording. Errors: those of BackendEntry::outline and
  /// Model::load().
  static Expected<ShapeModel> open(const BackendEntry& backend, const std::string& name, bool warnings);
};

/// One record per recording x prompt length: answers in the virtual time of `backend`, without values. Precondition: it
/// has `virtual_time` and `make_valueless`. Errors: kUsage; those of the device's model; as bench_generate().
Expected<void> bench_answers(const BackendEntry& backend, const std::string& model, const BenchOptions& options,
                             const BenchWatch& watch, const BenchSink& sink);

}  // namespace dllm::app

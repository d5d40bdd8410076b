#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "npu_compiler/analytic/routing.h"
#include "npu_core/device/array_keys.h"

namespace dllm::npu {

struct Device;
struct Mapping;
struct SramShape;

/// Cycles in which `rows` rows choose among `experts` and the scalar unit lists them
/// (src/npu_compiler/compiler/route.cpp), without the transfers of ExpertSchedule::load_ahead(). `biased`: the router
/// has a bias.
double route_cycles(const Device& device, const op::Route& o, std::int64_t rows, std::int64_t experts, bool biased);

/// A layer of experts in a step.
struct ExpertShape {
  std::int64_t rows = 0, used = 0, experts = 0;
  std::int64_t width = 0, inner = 0, out_width = 0;  ///< lanes of x, of gate and up, of the result
  std::int64_t largest_panel = 0;                    ///< rows of matrix SRAM, over all other matrices of the step
  double cycles_per_weight = 0;                      ///< of memory
  std::int64_t queue = 0;                            ///< instructions waiting for the array
  bool gelu = false;                                 ///< the tanh form in place of SiLU

  bool operator==(const ExpertShape&) const = default;
};

/// Cycles since the step began.
struct ExpertClocks {
  double now = 0;         ///< of the front end
  double dma = 0;         ///< when the load engine has finished everything requested
  double next_panel = 0;  ///< when the first panel of the next matrix is requested
};

/// Three items in flight and a ring of slots for their matrices (src/npu_compiler/compiler/experts.cpp). An item is an
/// expert, or a chunk of its rows; all have the expected numbers of rows and of blocks. A few rounds of the ring are
/// followed item by item; the other items take as long as the last of these, unless their transfers take longer.
class ExpertSchedule {
 public:
  /// `device` must outlive the schedule.
  ExpertSchedule(const Device& device, const ExpertShape& shape, const ChoiceAssumption& choices,
                 const Mapping& mapping);

  const ExpertShape& shape() const { return shape_; }
  /// Requests the matrices that are loaded while rows choose, the first at `at`. Returns the front end's cycles.
  double load_ahead(double at, double& dma);
  /// From the end of routing to the results.
  void run(ExpertClocks& clocks);

  // Sums of a layer: cycles of tiles, accesses of vector SRAM, cycles of memory.
  double array() const;
  double accesses() const;
  double memory() const { return experts_read_ * load_of_expert(); }

 private:
  enum Matrix : std::size_t { kGate, kUp, kDown, kCount };
  /// Column blocks with the same work between them.
  struct Columns {
    double count = 0;
    double array = 0;  ///< cycles of each: the slower of tiles and accesses of vector SRAM
    double issue = 0;  ///< cycles of the front end for each
  };
  struct Product {
    double k_tiles = 1, panel_columns = 1;  ///< column blocks of one block of rows
    double load = 0;                        ///< cycles of memory
    std::array<Columns, 2> columns;         ///< with work between them, then without
    double lead = 0;                        ///< of the front end over the array at the end
  };
  struct State;

  void plan_matrices(const Mapping& mapping, const SramShape& sram);
  void plan_rows(const ChoiceAssumption& choices, const SramShape& sram);
  void plan_products();
  Product product(std::int64_t lanes, std::int64_t contraction) const;
  double put_between(Product& product, double rows, double issue, double accesses) const;
  double load_of_expert() const { return 2 * products_[kGate].load + products_[kDown].load; }
  double constant_step(std::int64_t rows) const;
  double cleared_rows() const;

  void multiply(State& s, const Product& product, double there) const;
  void request(State& s, Matrix matrix, std::int64_t expert, double free);
  void item(State& s);
  void extrapolate(State& s, double period, std::int64_t done) const;
  void finish(State& s, ExpertClocks& clocks) const;

  const Device& d_;
  const ArrayKeys& a_;
  const ExpertShape shape_;
  std::int64_t chunk_ = 0;  ///< rows at once
  std::int64_t slots_ = 0, ahead_ = 0, parts_ = 1;
  bool apart_ = false;     ///< the ring is beside the panels of other matrices
  bool streamed_ = false;  ///< not even one expert fits
  std::int64_t slabs_ = 0, inner_slabs_ = 0, out_slabs_ = 0;
  std::int64_t experts_ = 0, items_ = 0;  ///< of the step, rounded
  double experts_read_ = 0, blocks_in_all_ = 0;
  double rows_ = 0, blocks_ = 0, block_rows_ = 0;                        ///< of an item; rows of a block
  double gather_row_ = 0, scatter_row_ = 0, pair_ = 0, pair_alone_ = 0;  ///< cycles; a pair of rows in SwiGLU
  double activate_left_ = 0, scatter_left_ = 0;  ///< cycles for an item's rows that do not fit between column blocks
  std::array<Product, kCount> products_;
  std::vector<std::array<double, kCount>> there_;  ///< by slot: when its matrices have arrived
};

}  // namespace dllm::npu

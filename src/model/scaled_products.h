#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "model/source.h"

namespace dllm {

/// Matrices that a file stores divided by a number of its own: "blk.0.attn_q.scale" {1} beside "blk.0.attn_q.weight"
/// (llama.cpp's names, for NVFP4). Returns the names of these scales, of products of the graph; tensors of other names
/// stay for check_tensors() to refuse. Scales of activations ("blk.0.attn_q.input_scale"), which only products in four
/// bits need, are taken out of `tensors`; their number is added to `left_out`.
std::vector<std::string> take_product_scales(const Graph& graph, std::vector<SourceTensor>& tensors, int& left_out);

/// The graph with the inputs of these products multiplied by the scales: W (s x) + b, where the file means s (W x) + b.
/// Weight ids of the model stay.
Graph with_product_scales(Graph graph, std::span<const std::string> scales);

}  // namespace dllm

// V_TOPK: the top_i largest of experts_i logits in descending order, and their softmax. A logit per cycle enters a
// sorted list: every entry compares itself with it and keeps its place, or takes that of its neighbour. Then an entry
// per cycle: exponential of the difference to the first, and the FP32 sum; the reciprocal of the rounded sum; an entry
// per cycle: product and write. It ends STEP cycles per expert after it began, as the simulator counts; the list needs
// one, and the softmax less than two.
`include "assert.svh"
`include "fault.svh"
module router #(
  parameter int VLEN = 8,
  parameter int TOP = 8,       // entries of the list
  parameter int STEP = 4,      // cycles per expert
  parameter int EXPERTS = 128, // at most
  localparam int Lane = $clog2(VLEN),
  localparam int Bits = $clog2(EXPERTS + 1),
  localparam int TopBits = $clog2(TOP + 1)
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               start_i,    // experts, top and the row of the current expert are held until done_o
  input  logic [Bits-1:0]    experts_i,  // at least 1
  input  logic [TopBits-1:0] top_i,      // at least 1, at most experts_i
  input  logic [16*VLEN-1:0] row_i,      // that of lane next_o in the cycle before
  output logic [Bits-1:0]    next_o,     // expert of the next cycle
  output logic               write_o,
  output logic [TopBits-1:0] index_o,
  output logic [15:0]        weight_o,
  output logic [Bits-1:0]    expert_o,
  output logic               done_o
);
  `DLLM_CHECK_PARAMETER(g_step_is_at_least_three, STEP >= 3)
  `DLLM_CHECK_PARAMETER(g_list_is_not_longer_than_experts, TOP >= 1 && TOP <= EXPERTS)

  typedef enum logic [1:0] { kInsert, kSum, kFactor, kWrite } phase_e;
  localparam int CycleBits = Bits + $clog2(STEP + 1);
  logic busy_q, active;
  logic [CycleBits-1:0] cycle_q, cycle;
  phase_e phase_q, phase;
  logic [Bits-1:0] expert_q, expert;
  logic [TopBits-1:0] index_q;
  assign active = start_i || busy_q;
  assign cycle = start_i ? '0 : cycle_q;
  assign phase = start_i ? kInsert : phase_q;
  assign expert = start_i ? '0 : expert_q;
  assign next_o = expert + 1'b1;
  assign done_o = active && cycle == CycleBits'(experts_i) * CycleBits'(STEP) - 1'b1;

  // The sorted list. An entry stays if it is not smaller: the lower lane wins ties.
  logic [15:0] logit, logit_key;
  logic [TOP-1:0] full_q, full, stays;
  logic [16*TOP-1:0] values_q;
  logic [Bits*TOP-1:0] experts_q;
  assign logit = row_i[16*expert[Lane-1:0]+:16];
  assign full = start_i ? '0 : full_q;
  order_key i_logit_key (.value_i(logit), .key_o(logit_key));
  generate
    for (genvar i = 0; i < TOP; i++) begin : g_entry
      logic [15:0] key;
      logic shifted;
      order_key i_key (.value_i(values_q[16*i+:16]), .key_o(key));
      assign stays[i] = full[i] && (key > logit_key || (key == logit_key && !`FAULT(17)));
      logic lower_full;
      if (i == 0) begin : g_first
        assign shifted = 1'b0;
        assign lower_full = 1'b1;
        always_ff @(posedge clk_i)
          if (active && phase == kInsert && !stays[i]) begin
            values_q[16*i+:16] <= logit;
            experts_q[Bits*i+:Bits] <= expert;
          end
      end else begin : g_later
        assign shifted = !stays[i-1];
        assign lower_full = full[i-1];
        always_ff @(posedge clk_i)
          if (active && phase == kInsert && !stays[i]) begin
            values_q[16*i+:16] <= shifted ? values_q[16*(i-1)+:16] : logit;
            experts_q[Bits*i+:Bits] <= shifted ? experts_q[Bits*(i-1)+:Bits] : expert;
          end
      end
      always_ff @(posedge clk_i) if (active && phase == kInsert) full_q[i] <= lower_full;
      logic unused_bit;
      assign unused_bit = shifted;
    end
  endgenerate

  // Softmax of the list.
  logic [15:0] value, difference, power, rounded, reciprocal, factor_q;
  logic [31:0] sum_q, sum;
  assign value = values_q[16*index_q+:16];
  fp_add #(.MAN(7)) i_difference (.a_i(value), .b_i({!values_q[15], values_q[14:0]}), .sum_o(difference));
  bf16_exp i_exp (.x_i(difference), .exp_o(power));
  fp_add #(.MAN(23)) i_sum (.a_i(index_q == '0 ? 32'b0 : sum_q), .b_i({power, 16'b0}), .sum_o(sum));
  f32_to_bf16 i_round (.value_i(sum_q), .bf16_o(rounded));
  bf16_reciprocal i_reciprocal (.x_i(rounded), .reciprocal_o(reciprocal));
  fp_multiply #(.MAN(7)) i_weight (.a_i(power), .b_i(factor_q), .product_o(weight_o));
  assign write_o = active && phase == kWrite && index_q < top_i;
  assign index_o = index_q;
  assign expert_o = experts_q[Bits*index_q+:Bits];

  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) busy_q <= 1'b0;
    else busy_q <= active && !done_o;
  always_ff @(posedge clk_i) begin
    cycle_q <= cycle + 1'b1;
    if (active)
      case (phase)
        kInsert: begin
          expert_q <= expert + 1'b1;
          index_q <= '0;
          phase_q <= next_o == experts_i ? kSum : kInsert;
        end
        kSum: begin
          sum_q <= sum;
          index_q <= index_q + 1'b1 == top_i ? '0 : index_q + 1'b1;
          if (index_q + 1'b1 == top_i) phase_q <= kFactor;
        end
        kFactor: begin
          factor_q <= reciprocal;
          phase_q <= kWrite;
        end
        default: if (index_q < top_i) index_q <= index_q + 1'b1;
      endcase
  end

  `DLLM_ASSERT(a_all_weights_are_written, !done_o || (phase == kWrite && index_q + 1'b1 >= top_i))
endmodule

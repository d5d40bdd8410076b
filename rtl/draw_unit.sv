// V_RED_DRAW: a lane per cycle (FP64: per four cycles) gets its Gumbel noise, g = -ln(-ln u), and its key z / T + g;
// the largest key so far wins, the lowest lane first. STAGES cycles from a lane to its comparison: the pipeline
// registers of a block stand at its output, and synthesis with register retiming moves them inside. The operands are
// held until done_o.
`include "assert.svh"
`include "fault.svh"
module draw_unit #(
  parameter int VLEN = 8,
  parameter int STAGES = 36,
  localparam int Lane = $clog2(VLEN)
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               start_i,
  input  logic [16*VLEN-1:0] row_i,
  input  logic [31:0]        first_i,        // token of lane 0
  input  logic [31:0]        position_i,
  input  logic [31:0]        step_i,         // control registers
  input  logic [31:0]        stream_i,
  input  logic [63:0]        seed_i,
  input  logic [63:0]        temperature_i,  // FP64, above 0
  input  logic [1:0]         precision_i,    // of keys: 0 FP64, 1 FP32, 2 BF16
  input  logic [31:0]        except_i,       // a token that is not drawn
  input  logic [31:0]        tokens_i,       // nor are those from this one on
  input  logic [63:0]        running_i,      // FP64: the largest key so far
  output logic               done_o,
  output logic               greater_o,      // a lane's key is larger
  output logic [Lane-1:0]    lane_o,
  output logic [15:0]        logit_o,
  output logic [63:0]        key_o
);
  localparam int PhiloxStages = 10, LogStages = 8;
  localparam int KeyStages = STAGES - 1 - PhiloxStages - 2 * LogStages;
  `DLLM_CHECK_PARAMETER(g_stages_cover_the_blocks, KeyStages >= 0)

  // Lanes enter one by one.
  localparam int Count = $clog2(4 * VLEN + STAGES + 1);
  logic busy_q, active, wide, enters;
  logic [Count-1:0] count_q, count, last;
  logic [Lane-1:0] lane;
  assign active = start_i || busy_q;
  assign count = start_i ? '0 : count_q;
  assign wide = precision_i == 2'd0;
  assign lane = wide ? Lane'(count >> 2) : Lane'(count);
  assign enters = active && count < (wide ? Count'(4 * VLEN) : Count'(VLEN)) && (!wide || count[1:0] == 2'd0);
  assign last = Count'(STAGES - 2) + (wide ? Count'(4 * VLEN) : Count'(VLEN));
  assign done_o = active && count == last;
  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) busy_q <= 1'b0;
    else busy_q <= active && !done_o;
  always_ff @(posedge clk_i) count_q <= count + 1'b1;

  // u = (2 (52 bits) + 1) 2^-53, exactly; then the noise.
  logic [127:0] bits;
  logic [31:0] token;
  logic [63:0] u, log_u, log_u_late, log_log, noise;
  assign token = first_i + 32'(lane);
  philox i_philox (
    .clk_i, .counter_i({stream_i, step_i, position_i, token}), .key_i(seed_i), .random_o(bits)
  );
  fp_pack #(.WIDTH(53), .EXP(11), .MAN(52)) i_uniform (
    .sign_i(1'b0), .magnitude_i({bits[31:0], bits[63:44], 1'b1}), .sticky_i(1'b0), .exponent_i(-14'sd53), .packed_o(u)
  );
  negative_log i_log (.x_i(u), .log_o(log_u));
  delay #(.WIDTH(64), .DEPTH(LogStages)) i_log_delay (.clk_i, .data_i(log_u), .data_o(log_u_late));
  negative_log i_log_log (.x_i(log_u_late), .log_o(log_log));
  delay #(.WIDTH(64), .DEPTH(LogStages)) i_noise (.clk_i, .data_i(log_log), .data_o(noise));

  // The lane arrives with its noise.
  localparam int Before = PhiloxStages + 2 * LogStages;
  logic here_valid, late_valid;
  logic [Lane-1:0] here, late;
  logic [15:0] logit;
  valid_delay #(.DEPTH(Before)) i_here_valid (.clk_i, .rst_ni, .valid_i(enters), .valid_o(here_valid));
  delay #(.WIDTH(Lane), .DEPTH(Before)) i_here (.clk_i, .data_i(lane), .data_o(here));
  assign logit = row_i[16*here+:16];

  // The key. The factor 1 / T has two roundings, to FP64 and to the precision of the keys; the divider is free for it,
  // because only keys in FP64 are quotients themselves.
  logic [63:0] quotient, key_wide, key_narrow, key, key_late;
  logic [31:0] scale, scale_f32, noise_f32, scaled, sum_f32;
  logic [15:0] scale_bf16, noise_bf16, scaled_bf16, sum_bf16;
  f64_quotient i_quotient (
    .numerator_i(wide ? logit : 16'h3f80), .denominator_i(temperature_i), .quotient_o(quotient)
  );
  f64_add i_wide_sum (.a_i(quotient), .b_i(noise), .sum_o(key_wide));
  f64_narrow #(.MAN(23)) i_scale (.value_i(quotient), .narrow_o(scale_f32));
  f64_narrow #(.MAN(7)) i_scale_bf16 (.value_i(quotient), .narrow_o(scale_bf16));
  f64_narrow #(.MAN(23)) i_noise_f32 (.value_i(noise), .narrow_o(noise_f32));
  f64_narrow #(.MAN(7)) i_noise_bf16 (.value_i(noise), .narrow_o(noise_bf16));
  assign scale = precision_i == 2'd2 ? {scale_bf16, 16'b0} : scale_f32;
  fp_multiply i_scaled (.a_i({logit, 16'b0}), .b_i(scale), .product_o(scaled));
  fp_add #(.MAN(23)) i_sum (.a_i(scaled), .b_i(noise_f32), .sum_o(sum_f32));
  f32_to_lane i_scaled_bf16 (.value_i(scaled), .lane_o(scaled_bf16));
  fp_add #(.MAN(7)) i_sum_bf16 (.a_i(scaled_bf16), .b_i(noise_bf16), .sum_o(sum_bf16));
  f32_widen i_widen (.value_i(precision_i == 2'd2 ? {sum_bf16, 16'b0} : sum_f32), .wide_o(key_narrow));
  assign key = wide ? key_wide : key_narrow;
  delay #(.WIDTH(64), .DEPTH(KeyStages)) i_key (.clk_i, .data_i(key), .data_o(key_late));
  valid_delay #(.DEPTH(KeyStages)) i_late_valid (.clk_i, .rst_ni, .valid_i(here_valid), .valid_o(late_valid));
  delay #(.WIDTH(Lane), .DEPTH(KeyStages)) i_late (.clk_i, .data_i(here), .data_o(late));

  // Comparison. NaN is never larger, and nothing is larger than it.
  function automatic logic [63:0] order(input logic [63:0] value);
    order = value[63] && value[62:0] != '0 ? ~value : {1'b1, value[62:0]};
  endfunction
  function automatic logic is_nan(input logic [62:0] value);
    is_nan = value > 63'h7ff0000000000000;
  endfunction
  logic [63:0] best_q, best;
  logic found_q, wins;
  logic [Lane-1:0] winner_q;
  logic [31:0] late_token;
  assign best = found_q ? best_q : running_i;
  assign late_token = first_i + 32'(late);
  assign wins = late_valid && late_token != except_i && late_token < tokens_i && !is_nan(key_late[62:0]) &&
                !is_nan(best[62:0]) &&
                (order(key_late) > order(best) || (`FAULT(19) && order(key_late) == order(best)));
  always_ff @(posedge clk_i) begin
    if (start_i) found_q <= 1'b0;
    else if (wins) begin
      found_q <= 1'b1;
      best_q <= key_late;
      winner_q <= late;
    end
  end
  assign greater_o = found_q || wins;
  assign lane_o = wins ? late : winner_q;
  assign key_o = wins ? key_late : best_q;
  assign logit_o = row_i[16*lane_o+:16];

  logic unused_bits;
  assign unused_bits = &{bits[127:64], bits[43:32]};

  `DLLM_ASSERT(a_no_lane_is_left, !done_o || !here_valid || KeyStages == 0)
endmodule

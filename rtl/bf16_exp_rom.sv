// Written by scripts/rtl_tables.py. Do not edit.
// Chords of 2^f over f in [i/64, (i+1)/64): start and rise; and the 43
// arguments that they round wrongly.
module bf16_exp_rom (
  input  logic [5:0]  index_i,
  output logic [14:0] start_o,
  output logic [9:0]  rise_o,
  input  logic [15:0] argument_i,
  output logic        exception_o,
  output logic [14:0] result_o
);
  always_comb begin
    case (index_i)
      6'd0: {start_o, rise_o} = {15'd0, 10'd357};
      6'd1: {start_o, rise_o} = {15'd357, 10'd361};
      6'd2: {start_o, rise_o} = {15'd717, 10'd365};
      6'd3: {start_o, rise_o} = {15'd1082, 10'd369};
      6'd4: {start_o, rise_o} = {15'd1451, 10'd373};
      6'd5: {start_o, rise_o} = {15'd1823, 10'd377};
      6'd6: {start_o, rise_o} = {15'd2200, 10'd381};
      6'd7: {start_o, rise_o} = {15'd2581, 10'd385};
      6'd8: {start_o, rise_o} = {15'd2965, 10'd389};
      6'd9: {start_o, rise_o} = {15'd3355, 10'd393};
      6'd10: {start_o, rise_o} = {15'd3748, 10'd398};
      6'd11: {start_o, rise_o} = {15'd4146, 10'd402};
      6'd12: {start_o, rise_o} = {15'd4548, 10'd406};
      6'd13: {start_o, rise_o} = {15'd4954, 10'd411};
      6'd14: {start_o, rise_o} = {15'd5365, 10'd415};
      6'd15: {start_o, rise_o} = {15'd5780, 10'd420};
      6'd16: {start_o, rise_o} = {15'd6200, 10'd424};
      6'd17: {start_o, rise_o} = {15'd6624, 10'd429};
      6'd18: {start_o, rise_o} = {15'd7053, 10'd434};
      6'd19: {start_o, rise_o} = {15'd7487, 10'd438};
      6'd20: {start_o, rise_o} = {15'd7925, 10'd443};
      6'd21: {start_o, rise_o} = {15'd8368, 10'd448};
      6'd22: {start_o, rise_o} = {15'd8816, 10'd453};
      6'd23: {start_o, rise_o} = {15'd9269, 10'd458};
      6'd24: {start_o, rise_o} = {15'd9727, 10'd463};
      6'd25: {start_o, rise_o} = {15'd10189, 10'd468};
      6'd26: {start_o, rise_o} = {15'd10657, 10'd473};
      6'd27: {start_o, rise_o} = {15'd11130, 10'd478};
      6'd28: {start_o, rise_o} = {15'd11608, 10'd483};
      6'd29: {start_o, rise_o} = {15'd12091, 10'd488};
      6'd30: {start_o, rise_o} = {15'd12580, 10'd494};
      6'd31: {start_o, rise_o} = {15'd13073, 10'd499};
      6'd32: {start_o, rise_o} = {15'd13573, 10'd505};
      6'd33: {start_o, rise_o} = {15'd14077, 10'd510};
      6'd34: {start_o, rise_o} = {15'd14587, 10'd516};
      6'd35: {start_o, rise_o} = {15'd15103, 10'd521};
      6'd36: {start_o, rise_o} = {15'd15624, 10'd527};
      6'd37: {start_o, rise_o} = {15'd16151, 10'd533};
      6'd38: {start_o, rise_o} = {15'd16684, 10'd539};
      6'd39: {start_o, rise_o} = {15'd17222, 10'd544};
      6'd40: {start_o, rise_o} = {15'd17767, 10'd550};
      6'd41: {start_o, rise_o} = {15'd18317, 10'd556};
      6'd42: {start_o, rise_o} = {15'd18873, 10'd562};
      6'd43: {start_o, rise_o} = {15'd19436, 10'd568};
      6'd44: {start_o, rise_o} = {15'd20004, 10'd575};
      6'd45: {start_o, rise_o} = {15'd20579, 10'd581};
      6'd46: {start_o, rise_o} = {15'd21160, 10'd587};
      6'd47: {start_o, rise_o} = {15'd21747, 10'd594};
      6'd48: {start_o, rise_o} = {15'd22341, 10'd600};
      6'd49: {start_o, rise_o} = {15'd22941, 10'd607};
      6'd50: {start_o, rise_o} = {15'd23547, 10'd613};
      6'd51: {start_o, rise_o} = {15'd24161, 10'd620};
      6'd52: {start_o, rise_o} = {15'd24780, 10'd627};
      6'd53: {start_o, rise_o} = {15'd25407, 10'd633};
      6'd54: {start_o, rise_o} = {15'd26041, 10'd640};
      6'd55: {start_o, rise_o} = {15'd26681, 10'd647};
      6'd56: {start_o, rise_o} = {15'd27328, 10'd654};
      6'd57: {start_o, rise_o} = {15'd27983, 10'd662};
      6'd58: {start_o, rise_o} = {15'd28644, 10'd669};
      6'd59: {start_o, rise_o} = {15'd29313, 10'd676};
      6'd60: {start_o, rise_o} = {15'd29989, 10'd683};
      6'd61: {start_o, rise_o} = {15'd30672, 10'd691};
      6'd62: {start_o, rise_o} = {15'd31363, 10'd698};
      default: {start_o, rise_o} = {15'd32062, 10'd706};
    endcase
  end

  always_comb begin
    exception_o = 1'b1;
    case (argument_i)
      16'h3cdd: result_o = 15'h3f84;
      16'h40bf: result_o = 15'h43c4;
      16'h40db: result_o = 15'h446b;
      16'h41f0: result_o = 15'h551c;
      16'h41f7: result_o = 15'h55bb;
      16'h41f9: result_o = 15'h55f0;
      16'h41ff: result_o = 15'h567e;
      16'h420d: result_o = 15'h58e8;
      16'h421d: result_o = 15'h5bc6;
      16'h4239: result_o = 15'h60d4;
      16'h4248: result_o = 15'h638d;
      16'h4255: result_o = 15'h65e3;
      16'h4268: result_o = 15'h694d;
      16'h426b: result_o = 15'h69d9;
      16'h4278: result_o = 15'h6c2f;
      16'h427e: result_o = 15'h6d44;
      16'h42ac: result_o = 15'h7d87;
      16'h42b0: result_o = 15'h7ef9;
      16'hbbc1: result_o = 15'h3f7e;
      16'hbf49: result_o = 15'h3ee9;
      16'hbf5a: result_o = 15'h3eda;
      16'hbf8c: result_o = 15'h3eab;
      16'hc039: result_o = 15'h3d63;
      16'hc03b: result_o = 15'h3d5c;
      16'hc12b: result_o = 15'h37bf;
      16'hc151: result_o = 15'h360e;
      16'hc1fa: result_o = 15'h28f1;
      16'hc219: result_o = 15'h23e1;
      16'hc22d: result_o = 15'h2042;
      16'hc243: result_o = 15'h1c4b;
      16'hc250: result_o = 15'h19fc;
      16'hc253: result_o = 15'h196e;
      16'hc257: result_o = 15'h18af;
      16'hc261: result_o = 15'h16e6;
      16'hc262: result_o = 15'h16b3;
      16'hc283: result_o = 15'h1035;
      16'hc287: result_o = 15'h0ec4;
      16'hc28d: result_o = 15'h0c9c;
      16'hc295: result_o = 15'h09b7;
      16'hc2a7: result_o = 15'h0339;
      16'hc2a9: result_o = 15'h0288;
      16'hc2af: result_o = 15'h006d;
      16'hc2b0: result_o = 15'h0042;
      default: begin
        exception_o = 1'b0;
        result_o = 15'h0;
      end
    endcase
  end
endmodule

// Converts an MX element to a signed integer in units of its smallest step; a NaN code gives 0 and special_o. ELEMENT
// is an MxElement of src/numerics/mx.h: 0 INT4, 1 INT8, 2 E2M1, 3 E2M3, 4 E3M2, 5 E4M3.
module mx_decode #(
  parameter int ELEMENT = 1,
  localparam int Bits = ELEMENT == 0 || ELEMENT == 2 ? 4 : ELEMENT == 3 || ELEMENT == 4 ? 6 : 8,
  localparam int Width = ELEMENT == 0 ? 4 : ELEMENT == 1 ? 8 : ELEMENT == 2 ? 5 : ELEMENT == 3 ? 7
                                                                                : ELEMENT == 4 ? 10 : 19
) (
  input  logic [Bits-1:0]         code_i,
  output logic signed [Width-1:0] fixed_o,
  output logic                    special_o
);
  generate
    if (ELEMENT <= 1) begin : g_integer
      assign fixed_o = code_i;
      assign special_o = 1'b0;
    end else begin : g_float
      localparam int Man = ELEMENT == 2 ? 1 : ELEMENT == 4 ? 2 : 3;
      localparam int Exp = Bits - 1 - Man;
      logic [Exp-1:0] exponent;
      logic [Width-2:0] magnitude;
      assign exponent = code_i[Bits-2:Man];
      assign special_o = ELEMENT == 5 && code_i[Bits-2:0] == '1;
      assign magnitude = exponent == '0 ? (Width - 1)'(code_i[Man-1:0])
                                        : (Width - 1)'({1'b1, code_i[Man-1:0]}) << (exponent - 1'b1);
      assign fixed_o = special_o ? '0 : code_i[Bits-1] ? -$signed({1'b0, magnitude}) : $signed({1'b0, magnitude});
    end
  endgenerate
endmodule

// mx_decode of one of two formats, whose values are moved up by a constant each, so that both lie in one window. Codes
// of the shorter one are in the low bits.
module mx_decode_two #(
  parameter int FIRST = 1,
  parameter int SECOND = FIRST,
  parameter int FIRST_UP = 0,
  parameter int SECOND_UP = 0,
  localparam int FirstBits = FIRST == 0 || FIRST == 2 ? 4 : FIRST == 3 || FIRST == 4 ? 6 : 8,
  localparam int SecondBits = SECOND == 0 || SECOND == 2 ? 4 : SECOND == 3 || SECOND == 4 ? 6 : 8,
  localparam int Bits = FirstBits > SecondBits ? FirstBits : SecondBits,
  localparam int FirstFixed = FIRST == 0 ? 4 : FIRST == 1 ? 8 : FIRST == 2 ? 5 : FIRST == 3 ? 7 : FIRST == 4 ? 10 : 19,
  localparam int SecondFixed = SECOND == 0 ? 4 : SECOND == 1 ? 8 : SECOND == 2 ? 5 : SECOND == 3 ? 7
                                                                      : SECOND == 4 ? 10 : 19,
  localparam int FirstWidth = FirstFixed + FIRST_UP,
  localparam int SecondWidth = SecondFixed + SECOND_UP,
  localparam int Width = FirstWidth > SecondWidth ? FirstWidth : SecondWidth
) (
  input  logic [Bits-1:0]         code_i,
  input  logic                    second_i,
  output logic signed [Width-1:0] fixed_o,
  output logic                    special_o
);
  logic signed [FirstFixed-1:0] first_fixed;
  logic first_special;
  mx_decode #(.ELEMENT(FIRST)) i_first (
    .code_i(code_i[FirstBits-1:0]), .fixed_o(first_fixed), .special_o(first_special)
  );
  generate
    if (FIRST == SECOND && FIRST_UP == SECOND_UP) begin : g_one
      assign fixed_o = Width'(first_fixed) <<< FIRST_UP;
      assign special_o = first_special;
      logic unused_choice;
      assign unused_choice = second_i;
    end else begin : g_two
      logic signed [SecondFixed-1:0] second_fixed;
      logic second_special;
      mx_decode #(.ELEMENT(SECOND)) i_second (
        .code_i(code_i[SecondBits-1:0]), .fixed_o(second_fixed), .special_o(second_special)
      );
      assign fixed_o = second_i ? Width'(second_fixed) <<< SECOND_UP : Width'(first_fixed) <<< FIRST_UP;
      assign special_o = second_i ? second_special : first_special;
    end
  endgenerate
endmodule

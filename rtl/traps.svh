// Why the engine stops: the values of its trap_o.
/* verilator lint_off UNUSEDPARAM */
localparam logic [2:0] TrapNone = 3'd0, TrapOpcode = 3'd1, TrapRow = 3'd2, TrapWord = 3'd3, TrapLength = 3'd4,
                       TrapLoop = 3'd5, TrapOrder = 3'd6, TrapValue = 3'd7;
/* verilator lint_on UNUSEDPARAM */

// Where an instruction executes.
localparam logic [2:0] UnitFront = 3'd0;   // integer and control instructions
localparam logic [2:0] UnitVector = 3'd1;
localparam logic [2:0] UnitScalar = 3'd2;  // FP registers
localparam logic [2:0] UnitArray = 3'd3;
localparam logic [2:0] UnitDrain = 3'd4;   // write-outs
localparam logic [2:0] UnitLoadMatrix = 3'd5;
localparam logic [2:0] UnitLoadVector = 3'd6;
localparam logic [2:0] UnitStore = 3'd7;
localparam logic [3:0] PipeNone = 4'd15;   // none of the vector unit's pipes

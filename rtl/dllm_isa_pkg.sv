// Generated from src/npu/isa by `dllm npu isa --format sv`. Do not edit.
package dllm_isa_pkg;

  localparam int InstructionWidth = 32;
  localparam int OpcodeWidth = 6;
  localparam int GpRegisters = 16;
  localparam int FpRegisters = 8;
  localparam int AddressRegisters = 8;

  // Fields: least significant bit and width.
  localparam int RdLow = 6;
  localparam int RdWidth = 4;
  localparam int Rs1Low = 10;
  localparam int Rs1Width = 4;
  localparam int Rs2Low = 14;
  localparam int Rs2Width = 4;
  localparam int Rs3Low = 18;
  localparam int Rs3Width = 4;
  localparam int Funct1Low = 22;
  localparam int Funct1Width = 4;
  localparam int Imm18Low = 14;
  localparam int Imm18Width = 18;
  localparam int Imm22Low = 10;
  localparam int Imm22Width = 22;
  localparam int Imm17Low = 14;
  localparam int Imm17Width = 17;
  localparam int Imm16Low = 14;
  localparam int Imm16Width = 16;
  localparam int Imm13Low = 18;
  localparam int Imm13Width = 13;
  localparam int TagLow = 26;
  localparam int TagWidth = 4;

  typedef enum logic [5:0] {
    OP_INVALID = 6'h00,
    OP_M_MM = 6'h01,
    OP_M_TMM = 6'h02,
    OP_M_BMM = 6'h03,
    OP_M_BTMM = 6'h04,
    OP_M_BMM_WO = 6'h05,
    OP_M_MM_WO = 6'h06,
    OP_M_MV = 6'h07,
    OP_M_TMV = 6'h08,
    OP_M_BMV = 6'h09,
    OP_M_BTMV = 6'h0A,
    OP_M_MV_WO = 6'h0B,
    OP_M_BMV_WO = 6'h0C,
    OP_V_ADD_VV = 6'h0D,
    OP_V_ADD_VF = 6'h0E,
    OP_V_SUB_VV = 6'h0F,
    OP_V_SUB_VF = 6'h10,
    OP_V_MUL_VV = 6'h11,
    OP_V_MUL_VF = 6'h12,
    OP_V_EXP_V = 6'h13,
    OP_V_RECI_V = 6'h14,
    OP_V_RED_SUM = 6'h15,
    OP_V_RED_MAX = 6'h16,
    OP_S_ADD_FP = 6'h17,
    OP_S_SUB_FP = 6'h18,
    OP_S_MAX_FP = 6'h19,
    OP_S_MUL_FP = 6'h1A,
    OP_S_EXP_FP = 6'h1B,
    OP_S_RECI_FP = 6'h1C,
    OP_S_SQRT_FP = 6'h1D,
    OP_S_LD_FP = 6'h1E,
    OP_S_ST_FP = 6'h1F,
    OP_S_MAP_V_FP = 6'h20,
    OP_S_ADD_INT = 6'h21,
    OP_S_ADDI_INT = 6'h22,
    OP_S_SUB_INT = 6'h23,
    OP_S_MUL_INT = 6'h24,
    OP_S_LUI_INT = 6'h25,
    OP_S_LD_INT = 6'h26,
    OP_S_ST_INT = 6'h27,
    OP_H_PREFETCH_M = 6'h28,
    OP_H_PREFETCH_V = 6'h29,
    OP_H_STORE_V = 6'h2A,
    OP_C_SET_ADDR_REG = 6'h2B,
    OP_C_SET_SCALE_REG = 6'h2C,
    OP_C_SET_STRIDE_REG = 6'h2D,
    OP_C_SET_V_MASK_REG = 6'h2E,
    OP_C_LOOP_START = 6'h2F,
    OP_C_LOOP_END = 6'h30,
    OP_V_PS_V = 6'h31,
    OP_V_SHFT_V = 6'h32,
    OP_C_HADAMARD_TRANSFORM = 6'h33,
    OP_C_BREAK = 6'h34,
    OP_V_MAX_VF = 6'h35,
    OP_V_MIN_VF = 6'h36,
    OP_V_TOPK = 6'h37,
    OP_V_RED_MAX_IDX = 6'h38,
    OP_V_TOPK_MASK = 6'h39,
    OP_V_SELECT_INT = 6'h3A,
    OP_S_LI_FP = 6'h3B,
    OP_M_SUM = 6'h3C,
    OP_C_BNZ = 6'h3D,
    OP_C_FENCE = 6'h3E,
    OP_C_SET_CSR = 6'h3F
  } opcode_e;

  // Rows that share an opcode: instruction & MASK == VALUE.
  localparam logic [31:0] SEL_V_RECI_V_MASK = 32'h03C0003F;
  localparam logic [31:0] SEL_V_RECI_V_VALUE = 32'h00000014;
  localparam logic [31:0] SEL_V_SQRT_V_MASK = 32'h03C0003F;
  localparam logic [31:0] SEL_V_SQRT_V_VALUE = 32'h00400014;
  localparam logic [31:0] SEL_V_RED_SUM_MASK = 32'h03C0003F;
  localparam logic [31:0] SEL_V_RED_SUM_VALUE = 32'h00000015;
  localparam logic [31:0] SEL_V_RED_SUM_SEG_MASK = 32'h03C0003F;
  localparam logic [31:0] SEL_V_RED_SUM_SEG_VALUE = 32'h00400015;
  localparam logic [31:0] SEL_V_RED_MAX_MASK = 32'h03C0003F;
  localparam logic [31:0] SEL_V_RED_MAX_VALUE = 32'h00000016;
  localparam logic [31:0] SEL_V_RED_MAX_SEG_MASK = 32'h03C0003F;
  localparam logic [31:0] SEL_V_RED_MAX_SEG_VALUE = 32'h00400016;
  localparam logic [31:0] SEL_S_MAP_V_FP_MASK = 32'h8000003F;
  localparam logic [31:0] SEL_S_MAP_V_FP_VALUE = 32'h00000020;
  localparam logic [31:0] SEL_S_MAP_V_FP_LEN_MASK = 32'h8000003F;
  localparam logic [31:0] SEL_S_MAP_V_FP_LEN_VALUE = 32'h80000020;
  localparam logic [31:0] SEL_V_MAX_VF_MASK = 32'h03C0003F;
  localparam logic [31:0] SEL_V_MAX_VF_VALUE = 32'h00000035;
  localparam logic [31:0] SEL_V_MAX_VV_MASK = 32'h03C0003F;
  localparam logic [31:0] SEL_V_MAX_VV_VALUE = 32'h00400035;
  localparam logic [31:0] SEL_V_MIN_VF_MASK = 32'h03C0003F;
  localparam logic [31:0] SEL_V_MIN_VF_VALUE = 32'h00000036;
  localparam logic [31:0] SEL_V_MIN_VV_MASK = 32'h03C0003F;
  localparam logic [31:0] SEL_V_MIN_VV_VALUE = 32'h00400036;
  localparam logic [31:0] SEL_S_LI_FP_MASK = 32'hC000003F;
  localparam logic [31:0] SEL_S_LI_FP_VALUE = 32'h0000003B;
  localparam logic [31:0] SEL_S_MV_FP_MASK = 32'hC000003F;
  localparam logic [31:0] SEL_S_MV_FP_VALUE = 32'h4000003B;

  typedef enum logic [4:0] {
    CSR_BMM_SCALE = 5'd0,
    CSR_PREFETCH_M_ROWS = 5'd1,
    CSR_PREFETCH_V_ROWS = 5'd2,
    CSR_STORE_V_ROWS = 5'd3,
    CSR_BMM_ROWS = 5'd4,
    CSR_BMM_COLS = 5'd5,
    CSR_BMM_GROUP = 5'd6,
    CSR_BMM_HEAD_STRIDE = 5'd7,
    CSR_SEGMENT_LENGTH = 5'd8,
    CSR_ROUTER_EXPERTS = 5'd9,
    CSR_ROUTER_TOP = 5'd10,
    CSR_FORMAT_WEIGHT = 5'd11,
    CSR_FORMAT_MATRIX_KV = 5'd12,
    CSR_FORMAT_ACTIVATION = 5'd13,
    CSR_FORMAT_VECTOR_KV = 5'd14,
    CSR_FORMAT_MATRIX_INPUT = 5'd15,
    CSR_BMM_LAYOUT = 5'd16,
    CSR_MM_ROWS = 5'd17
  } csr_e;

endpackage

; y = x cos + rotate_half(x) sin for 4 heads of 16 lanes per row, 3 tokens.
; VRAM: x from 0, cos from 1024, sin from 2048 (the sign of the first half is in sin), y from 3072, scratch at 4096.
li gp6, 8
li gp7, 4096
li gp1, 0
li gp2, 1024
li gp3, 2048
li gp4, 3072
.loop gp5, 3
  V_SHFT_V gp7, gp1, gp6, 2       ; lane i of a head gets lane i +- 8
  V_MUL_VV gp7, gp7, gp3, 0
  V_MUL_VV gp4, gp1, gp2, 0
  V_ADD_VV gp4, gp4, gp7, 0
  S_ADDI_INT gp1, gp1, 64
  S_ADDI_INT gp2, gp2, 64
  S_ADDI_INT gp3, gp3, 64
  S_ADDI_INT gp4, gp4, 64
.endloop

; SwiGLU: y = x * sigmoid(x) * u, 3 rows: x from 0, u from 1024, y from 2048. FP_MEM 0: 1.0.
S_LD_FP f1, gp0, 0
li gp1, 0
li gp2, 1024
li gp3, 2048
.loop gp4, 3
  V_SUB_VF gp3, gp1, f0, 0, 1     ; -x
  V_EXP_V gp3, gp3, 0
  V_ADD_VF gp3, gp3, f1, 0
  V_RECI_V gp3, gp3, 0
  V_MUL_VV gp3, gp3, gp1, 0
  V_MUL_VV gp3, gp3, gp2, 0
  S_ADDI_INT gp1, gp1, 64
  S_ADDI_INT gp2, gp2, 64
  S_ADDI_INT gp3, gp3, 64
.endloop

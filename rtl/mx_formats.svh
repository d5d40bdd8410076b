// Properties of MX elements by number, as MxElement of src/numerics/mx.h: 0 INT4, 1 INT8, 2 E2M1, 3 E2M3, 4 E3M2,
// 5 E4M3; 7 is BF16, which has no scale. Rules: 0 OCP, 1 PLENA, 2 PLENA symmetric.
/* verilator lint_off UNUSEDPARAM */
function automatic int mx_bits(input int element);
  mx_bits = element == 7 ? 16 : element == 0 || element == 2 ? 4 : element == 3 || element == 4 ? 6 : 8;
endfunction
function automatic int mx_width(input int element);  // of the fixed-point value
  mx_width = element == 0 ? 4 : element == 1 ? 8 : element == 2 ? 5 : element == 3 ? 7 : element == 4 ? 10 : 19;
endfunction
function automatic int mx_fraction(input int element, input int rule);
  mx_fraction = element == 0 ? (rule == 0 ? 2 : 3) : element == 1 ? (rule == 0 ? 6 : 7)
                : element == 2 ? 1 : element == 3 ? 3 : element == 4 ? 4 : 9;
endfunction
function automatic int mx_magnitude(input int element);  // bits of the largest fixed-point magnitude
  mx_magnitude = element == 0 ? 3 : element == 1 ? 7 : element == 2 ? 4 : element == 3 ? 6 : element == 4 ? 9 : 18;
endfunction
function automatic int mx_number(input int element, input int rule, input int block);  // of the format registers
  mx_number = element | ($clog2(block) << 4) | (rule << 8);
endfunction
/* verilator lint_on UNUSEDPARAM */

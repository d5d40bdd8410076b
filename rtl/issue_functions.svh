// Of the issue stage: port reservations and counts of cycles, which TIME, HORIZON, PORTS and Calendar size.
// Reserves `count` port accesses from cycle `from` on: at most one per cycle, or as many as are free. Returns the
// cycle of the last one with the new calendar.
function automatic logic [TIME+Calendar-1:0] reserve(input logic [Calendar-1:0] booked, input logic [TIME-1:0] from,
                                                     input logic [TIME-1:0] count, input logic run);
  logic [TIME-1:0] left, last;
  logic [Calendar-1:0] taken;
  left = count;
  last = from;
  taken = booked;
  for (int t = 0; t < HORIZON; t++) begin
    for (int n = 0; n < PORTS; n++) begin
      if (TIME'(t) >= from && left != '0 && taken[4*t+:4] < 4'(PORTS) && !(run && n > 0)) begin
        taken[4*t+:4] = taken[4*t+:4] + 4'd1;
        left = left - 1'b1;
        last = TIME'(t);
      end
    end
  end
  reserve = {last, taken};
endfunction
function automatic logic [TIME-1:0] later(input logic [TIME-1:0] a, input logic [TIME-1:0] b);
  later = a > b ? a : b;
endfunction
function automatic logic [TIME-1:0] less(input logic [TIME-1:0] cycles);
  less = cycles == '0 ? '0 : cycles - 1'b1;
endfunction

// Of the issue stage: counts of cycles, port reservations, and where an instruction waits.
function automatic cycles_t later(input cycles_t a, input cycles_t b);
  later = a > b ? a : b;
endfunction
function automatic cycles_t less(input cycles_t cycles);
  less = cycles == '0 ? '0 : cycles - 1'b1;
endfunction

// Reserves `count` port accesses from cycle `from` on: at most one per cycle (`run`), or as many as are free. Returns
// the cycle of the last one.
function automatic cycles_t reserve(input cycles_t from, input cycles_t count, input logic run);
  cycles_t left;
  left = count;
  reserve = from;
  for (int t = 0; t < HORIZON; t++) begin
    for (int n = 0; n < PORTS; n++) begin
      if (TIME'(t) >= from && left != '0 && now.calendar[t] < 4'(PORTS) && !(run && n > 0)) begin
        now.calendar[t] = now.calendar[t] + 4'd1;
        left = left - 1'b1;
        reserve = TIME'(t);
      end
    end
  end
endfunction

function automatic logic [2:0] queue_of(input logic [2:0] unit);
  queue_of = unit <= UnitArray ? unit - 3'd1 : unit - 3'd2;
endfunction
function automatic logic [1:0] engine_of(input logic [2:0] unit);
  engine_of = 2'(unit - UnitLoadMatrix);
endfunction

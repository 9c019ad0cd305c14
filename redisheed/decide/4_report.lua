-- Who is there, and what has happened since they asked last.

-- Clients, in the order in which they wait: id, when last seen, units it may want
-- (0: it does not wait), units the first of them needs (0: it does not wait
-- now, but is expected to want as much again), until when its turn is kept
-- for it, the number of the last batch of its news taken in, and how many
-- units it was granted of late, as of an instant, the number of its latest question,
-- and what that took: so many requests booked at one instant, so many at another, and
-- the cost of each. Those two are in microseconds; other instants are in milliseconds
-- since the origin's birth.
local clients, me = {}, nil
local gone = 60000000 -- who has not been seen for so long is left out
local birth = tonumber(o.g)
local function since(x) return birth + tonumber(x) * 1000 end
for id, seen, want, first, till, batch, got, at, n, took in string.gmatch(p.k or '', '(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)([^;]*);') do
  local c = {id = id, seen = since(seen), want = tonumber(want), first = tonumber(first), till = since(till), batch = tonumber(batch), got = tonumber(got), at = since(at), n = tonumber(n), took = took}
  if c.till <= now then c.want, c.first = 0, 0 end
  if id == q.c then
    me = c
    clients[#clients + 1] = c
  elseif now - c.seen < gone then
    clients[#clients + 1] = c
  end
end
local remember = me == nil or now - me.seen > 1000000
if not me then
  me = {id = q.c, want = 0, first = 0, till = 0, batch = 0, got = 0, at = now, n = 0, took = ''}
  clients[#clients + 1] = me
end
if remember then me.seen = now end

local ops = q.ops or {}
if #ops > 0 then
  if q.batch <= me.batch then
    ops = {} -- sent again, since the reply was lost
  else
    me.batch, remember = q.batch, true
  end
end

-- Answers may be lost, and questions too: what one took whose answer did not arrive is given back
-- with the next one, one that comes twice takes nothing more, and one that others have overtaken nothing.
local overtaken, again = false, nil
if q.n then
  local m0, x0, m1, x1, req, bytes = string.match(me.took, '^ (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  local took = m0 and {m0 = tonumber(m0), x0 = tonumber(x0), m1 = tonumber(m1), x1 = tonumber(x1), req = tonumber(req), bytes = tonumber(bytes)}
  if q.n < me.n then
    overtaken = true
  elseif q.n == me.n then
    again = took
  else
    if took and (q.heard or 0) < me.n then
      ops[#ops + 1] = {'m', took.x0, 0, took.m0, took.req, took.bytes, 0}
      ops[#ops + 1] = {'m', took.x1, 0, took.m1, took.req, took.bytes, 0}
      me.got = max(me.got - (took.m0 + took.m1) * took.req, 0)
    end
    me.n, me.took, remember = q.n, '', true
  end
end

local pause = tonumber(p.pu) or 0
if pause > 0 and tonumber(p.ps) <= (tonumber(o.pv) or 0) then pause = 0 end
local doubt = p.pd == '1'
local whole, manual = tonumber(o.pu) or 0, o.pm == '1'
local wdoubt = o.pd == '1'
local setO = {}

local function setp(field, value)
  p[field] = value
  dirty[field] = true
end

local returned = {r = 0, b = 0} -- to token buckets, by unit
local answers = false -- have come: what they no longer announce fades

for _, op in ipairs(ops) do
  local what = op[1]
  if what == 'm' then
    -- k units booked at x were in use until y; y = 0: they were not used.
    local x, y, k, req, bytes, really = op[2], op[3], op[4], op[5], op[6], op[7]
    for field, l in pairs(logs) do
      local n = l.u == 'b' and bytes or l.u == 'r' and req or 0
      if l.q > 0 then n = min(n, l.q) end
      if n > 0 then
        local m = remove(l, x, n * k)
        local a = announced[field]
        if y > 0 then
          local again = m
          if x + l.w <= now then again = n * k end -- they came back before they were known to be in use
          if l.u == 'b' then
            again = really
            if a and not slides(a) then a.left = a.left - (really - n * k) end
          end
          add(l, y, again)
        elseif a and m > 0 then
          a.dirty = true
          a.sent = a.sent - m
          if x > a.last then a.left, a.in_epoch = a.left + m, a.in_epoch - m end
        end
        if m > 0 and y == 0 then news = true end
      elseif l.u == 'b' and y > 0 and really > 0 then
        add(l, y, really)
      end
    end
    answers = answers or y > 0
    if y == 0 then
      returned.r, returned.b = returned.r + req * k, returned.b + bytes * k
    else
      returned.b = returned.b + bytes * k - really
    end
  elseif what == 's' then
    answers = true
    local before = announced['a:' .. op[2]]
    local quota, window = before and before.log.q, before and before.window
    local a = announce(op[2], op[3], op[4], op[5])
    if a then
      if before and (a.log.q > quota or a.window < window) then news = true end
      turn(a)
      hear(a, {remaining = op[6], reset = op[7], resolution = op[8], refused = op[9], age = op[10], flight = op[11],
        n = op[12], epoch = op[13], sent = op[14], used = op[15], most = op[16]})
    end
  elseif what == 'x' then
    local a = announced['a:' .. op[2]]
    if a then a.closed, a.said, a.dirty = max(a.closed, now + op[3]), now, true end
  elseif what == 'p' then
    local till = now + op[2]
    if op[3] == 1 then
      if till > whole then
        whole, wdoubt, manual = till, op[4] == 1, false
        setO.pu, setO.pd, setO.pm, setO.ps = int(till), op[4], 0, int(till) .. ' ' .. int(now)
        publish({k = 'pause', d = op[2], b = op[4]})
      end
    elseif till > pause then
      pause, doubt = till, op[4] == 1
      setp('pu', int(till))
      setp('ps', int(now))
      setp('pd', op[4] == 1 and '1' or '0')
      publish({k = 'pause', p = q.p, d = op[2], b = op[4]})
    end
  elseif what == 'w' then -- a pause in doubt is over
    if pause > now and doubt then
      pause = 0
      setp('pu', '0')
      publish({k = 'pause', p = q.p, d = -1})
    end
  elseif what == 'a' then -- n units in use until y that Redis does not know of
    local l = logs[op[2]]
    if l then add(l, op[3], op[4]) end
  end
end

-- Everything that redisheed asks of Redis, in one script: what happened since
-- the last question, the judgement of all limits of one partition at one
-- instant, and what is taken. doc.go describes the keys, the question and
-- the reply. Instants and spans of time are in microseconds.
--
-- KEYS[1] the origin's key, KEYS[2] the partition's; ARGV[1] the question.
local q = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local function int(x) return string.format('%.0f', x) end

local function load(key)
  local flat, h = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do h[flat[i]] = flat[i + 1] end
  return h
end

local function publish(news)
  news.o, news.c = q.o, q.c
  redis.call('PUBLISH', q.ch, cjson.encode(news))
end

local O, P = KEYS[1], KEYS[2]
local o = load(O)
local born = o.g == nil
if born then
  o = {g = int(now)}
end
local resets = tonumber(o.r) or 0

-- Reset and pause concern the origin alone.
if q['do'] == 'reset' then
  -- The partitions' books are void from now on: they name the number of
  -- resets they were begun after. Requests in flight stay in flight.
  redis.call('HSET', O, 'g', o.g, 'r', resets + 1)
  redis.call('HDEL', O, 'pu', 'pm', 'pd', 'pv', 'l', 'e', 'h')
  if redis.call('PTTL', O) < 60000 then redis.call('PEXPIRE', O, 60000) end
  publish({k = 'reset', r = resets + 1})
  return {0, o.g, resets + 1}
end
if q['do'] == 'pause' then
  if q.d > 0 then
    local till = max(tonumber(o.pu) or 0, now + q.d)
    redis.call('HSET', O, 'g', o.g, 'pu', int(till), 'pm', 1, 'pd', 0)
    local left = ceil((till - now) / 1000) + 1000
    if redis.call('PTTL', O) < left then redis.call('PEXPIRE', O, left) end
    publish({k = 'pause', d = q.d, m = 1})
  else
    redis.call('HSET', O, 'g', o.g, 'pv', int(now)) -- pauses set before are void
    redis.call('HDEL', O, 'pu', 'pm', 'pd')
    if redis.call('PTTL', O) < 60000 then redis.call('PEXPIRE', O, 60000) end
    publish({k = 'pause', d = -1, m = 1})
  end
  return {0, o.g, resets}
end

-- Who has used units of this origin and finds that Redis knows nothing of it
-- is to tell first. Until all had time to, nothing is granted.
if q.hist == 1 and q.g ~= o.g then
  if born or not o.h and now - tonumber(o.g) < q.grace then
    o.h = int(now + q.grace)
    redis.call('HSET', O, 'g', o.g, 'h', o.h)
    redis.call('PEXPIRE', O, 60000)
    publish({k = 'lost'})
  end
  return {2, o.g, resets, int(now)}
end

-- What others may have used of an origin that Redis has not known they are to
-- tell: it may have been emptied.
if born then publish({k = 'lost'}) end

local stamp = o.g .. '.' .. int(resets)
local p = load(P)
local stale = p.g ~= nil and p.g ~= stamp
if stale then p = {} end
local dirty = {} -- fields of p to write
local news = false -- something was given back
local expires = now

---------------------------------------------------------------- windows
-- A log is the units in use and when each comes back: i holds instants in
-- grains g, n how many units were in use last at that instant. Written as
-- "window quota unit index [*n] step [*n] …", steps from one index to the next.

local function grain(w, quota)
  if quota > 0 and quota <= 100 then return ceil(w / 100000) end
  return ceil(w / 100)
end

local function read(s)
  local l = {i = {}, n = {}, used = 0, k = 0}
  local k, at = 0, 0
  for word in string.gmatch(s, '%S+') do
    k = k + 1
    if k > 3 then
      if string.byte(word) == 42 then
        local n = tonumber(string.sub(word, 2))
        l.n[l.k] = n
        l.used = l.used + n - 1
      else
        at = at + tonumber(word)
        l.k = l.k + 1
        l.i[l.k], l.n[l.k] = at, 1
        l.used = l.used + 1
      end
    elseif k == 1 then l.w = tonumber(word)
    elseif k == 2 then l.q = tonumber(word)
    else l.u = word end
  end
  l.g = grain(l.w, l.q)
  return l
end

local function expire(l)
  local first = 1
  while first <= l.k and l.i[first] * l.g + l.w <= now do
    l.used = l.used - l.n[first]
    first = first + 1
  end
  if first > 1 then
    local i, n, k = {}, {}, 0
    for j = first, l.k do
      k = k + 1
      i[k], n[k] = l.i[j], l.n[j]
    end
    l.i, l.n, l.k, l.dirty = i, n, k, true
  end
end

local function add(l, at, n)
  if n <= 0 or at + l.w <= now then return end
  local x = ceil(at / l.g)
  local j = l.k
  while j > 0 and l.i[j] > x do j = j - 1 end
  if j > 0 and l.i[j] == x then
    l.n[j] = l.n[j] + n
  else
    table.insert(l.i, j + 1, x)
    table.insert(l.n, j + 1, n)
    l.k = l.k + 1
  end
  l.used, l.dirty = l.used + n, true
end

-- remove takes back up to n units booked at an instant; it returns how many.
local function remove(l, at, n)
  local x = ceil(at / l.g)
  for j = l.k, 1, -1 do
    if l.i[j] == x then
      local m = min(n, l.n[j])
      l.n[j] = l.n[j] - m
      l.used, l.dirty = l.used - m, true
      if l.n[j] == 0 then
        table.remove(l.i, j)
        table.remove(l.n, j)
        l.k = l.k - 1
      end
      return m
    elseif l.i[j] < x then
      break
    end
  end
  return 0
end

-- back returns when n more units will have come back; nil: never, or later
-- than is known.
local function back(l, n)
  if n <= 0 then return now end
  for j = 1, l.k do
    n = n - l.n[j]
    if n <= 0 then return l.i[j] * l.g + l.w end
  end
end

-- awaited is back for whoever waits: what has not been answered yet may be
-- answered at any moment, long before the instant it is booked at.
local function awaited(l, n)
  local at = back(l, n)
  return at and min(at, now + l.w)
end

-- between returns how many units were in use last after one instant and
-- until another.
local function between(l, from, to)
  local n = 0
  for j = 1, l.k do
    local at = l.i[j] * l.g
    if at > from and at <= to then n = n + l.n[j] end
  end
  return n
end

-- fit has a log follow a policy that has changed.
local function fit(l, w, quota)
  if l.w == w and l.q == quota then return end
  local g = grain(w, quota)
  local was = l.g
  l.w, l.q, l.g, l.dirty = w, quota, g, true
  if g == was then return end
  local i, n, k = l.i, l.n, l.k
  l.i, l.n, l.k, l.used = {}, {}, 0, 0
  for j = 1, k do add(l, i[j] * was, n[j]) end
end

local function write(l)
  local s, k, at = {int(l.w), int(l.q), l.u}, 3, 0
  for j = 1, l.k do
    k = k + 1
    s[k] = int(l.i[j] - at)
    at = l.i[j]
    if l.n[j] > 1 then
      k = k + 1
      s[k] = '*' .. int(l.n[j])
    end
  end
  return table.concat(s, ' ')
end

local logs = {}      -- by field of p
local announced = {} -- by field of p; in the order of their fields
local order = {}

-- An announced policy: numbers by these names, then its log.
local columns = {'window', 'foreign', 'closed', 'opens', 'resolution', 'epoch', 'stated', 'left', 'in_epoch', 'sent', 'last', 'said', 'blind'}

for field, value in pairs(p) do
  local kind = string.sub(field, 1, 2)
  if kind == 'w:' or field == 'u' then
    logs[field] = read(value)
  elseif kind == 'a:' then
    local head, tail = string.match(value, '^([^|]*)|(.*)$')
    local a, k = {field = field, log = read(tail)}, 0
    for word in string.gmatch(head, '%S+') do
      k = k + 1
      a[columns[k]] = tonumber(word)
    end
    announced[field] = a
    order[#order + 1] = field
    logs[field] = a.log
  end
end
for _, l in pairs(logs) do expire(l) end

-- The policies of this process.
for _, lim in ipairs(q.lim or {}) do
  if lim[2] ~= 'c' and lim[5] == 0 then
    local field = 'w:' .. lim[1]
    local l = logs[field]
    if not l then
      l = {i = {}, n = {}, k = 0, used = 0, w = lim[4], q = lim[3], u = lim[2], g = grain(lim[4], lim[3])}
      logs[field] = l
    end
    fit(l, lim[4], lim[3])
  end
end

-- An announced policy whose quota and window are known is a sliding window,
-- whatever the origin says it is; what others use of it is left to them. Of
-- any other, what the origin said is left is counted down until its reset.
local function slides(a) return a.log.q > 0 and a.window > 0 and a.log.u ~= 'c' end
-- Where no window is known, uses are remembered for a while, to tell what an
-- answer can have counted; so they are as long as no policy is announced,
-- for the first one to begin with.
local memory = 10000000
local unknown = #order == 0 and 'u' or nil

local function announce(id, unit, quota, w)
  local field = 'a:' .. id
  local a = announced[field]
  if not a then
    if #order >= 64 then return nil end
    a = {field = field, log = {i = {}, n = {}, k = 0, used = 0, w = memory, q = 0, u = unit, g = grain(memory, 0)}}
    for _, c in ipairs(columns) do a[c] = 0 end
    a.fresh = true
    announced[field], logs[field] = a, a.log
    order[#order + 1] = field
  end
  if quota < 0 then quota = a.log.q end
  if w < 0 then w = a.window end
  a.log.u = unit
  fit(a.log, w > 0 and w or memory, quota)
  if a.fresh then
    a.fresh = nil
    local before = unknown and logs[unknown]
    if before and unit == 'r' then
      for j = 1, before.k do add(a.log, before.i[j] * before.g, before.n[j]) end
    end
  end
  a.window, a.dirty = w, true
  return a
end

-- What this process has heard announced, and Redis knows no more.
local current = {}
for _, lim in ipairs(q.ann or {}) do
  local field = 'a:' .. lim[1]
  current[field] = true
  if not announced[field] then
    local a = announce(lim[1], lim[2], lim[3], lim[4])
    if a then a.said = now end
  end
end

-- turn begins a new epoch where the present one is over.
local function turn(a)
  local till = max(a.closed, a.opens)
  if till == 0 or now < till then return end
  a.last, a.closed, a.opens, a.dirty = till, 0, 0, true
  if not slides(a) then
    a.epoch, a.stated, a.left, a.in_epoch = a.epoch + 1, 0, 0, 0
  end
end

-- hear takes in what one answer said of one policy: how many units remained,
-- and until when; -1: not said. at is when it came, start when its request
-- was sent; sent, used and epoch are the policy's when it was granted.
local function hear(a, s)
  local l, at = a.log, now - s.age
  local start = at - s.flight
  local reset = min(s.reset, s.most)
  a.said, a.dirty = max(a.said, at), true
  if s.resolution > 0 then a.resolution = s.resolution end
  local sliding = slides(a)
  if not sliding and s.epoch ~= a.epoch and (reset < 0 or a.last == 0 or start + reset - s.resolution <= a.last) then
    if s.remaining == 0 and reset >= 0 and a.stated == 0 then a.closed = max(a.closed, at + reset) end
    return -- of an epoch that is over
  end
  if reset >= 0 then
    local named = at + reset
    if a.opens == 0 or start + reset - s.resolution > a.opens or named < a.opens then a.opens = named end
  end
  local r = s.remaining
  if r < 0 then return end
  if l.q > 0 then r = min(r, l.q) end
  local margin = max(2 * s.flight, 1000)
  if sliding then
    if s.refused == 0 then
      local most = s.sent < 0 and l.used or s.used + a.sent - s.sent -- of our units, what r can have counted …
      local least = between(l, at + s.flight - l.w, start - margin) + s.n -- … and what it has, if the window slides
      a.foreign = max(l.q - most - r, min(a.foreign - floor(a.foreign / 8) - 1, l.q - least - r), 0)
    end
  else
    local overlap = between(l, start - margin, now + l.w) - s.n
    local least = r - max(overlap, 0)
    if a.stated == 1 then
      a.left = min(max(a.left, least), r)
    elseif l.q == 0 then
      a.left = min(least, r)
    else
      a.left = min(max(l.q - a.in_epoch, least), r)
    end
    a.stated = 1
  end
  if r > 0 then
    a.blind = 0
    return
  end
  local wait = reset
  if wait < 0 then
    local at1 = sliding and back(l, 1)
    if at1 then
      wait = at1 - at
    elseif a.window > 0 then
      wait = a.window
    else
      a.blind = min(a.blind + 1, 7)
      wait = 5000000 * 2 ^ (a.blind - 1)
    end
  end
  a.closed = max(a.closed, at + min(wait, s.most))
end

---------------------------------------------------------------- who is there

-- Clients, in the order in which they wait: id, when last seen, units it may want
-- (0: it does not wait), units the first of them needs (0: it does not wait
-- now, but is expected to want as much again), until when its turn is kept
-- for it, the number of the last batch of its news taken in, and how many
-- units it was granted of late, as of an instant. Instants are in milliseconds
-- since the origin's birth.
local clients, me = {}, nil
local birth = tonumber(o.g)
local function since(x) return birth + tonumber(x) * 1000 end
for id, seen, want, first, till, batch, got, at in string.gmatch(p.k or '', '(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+);') do
  local c = {id = id, seen = since(seen), want = tonumber(want), first = tonumber(first), till = since(till), batch = tonumber(batch), got = tonumber(got), at = since(at)}
  if c.till <= now then c.want, c.first = 0, 0 end
  if id == q.c then
    me = c
    clients[#clients + 1] = c
  elseif now - c.seen < 60000000 then
    clients[#clients + 1] = c
  end
end
local remember = me == nil or now - me.seen > 1000000
if not me then
  me = {id = q.c, want = 0, first = 0, till = 0, batch = 0, got = 0, at = now}
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

---------------------------------------------------------------- what happened

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
    local a = announce(op[2], op[3], op[4], op[5])
    if a then
      turn(a)
      hear(a, {remaining = op[6], reset = op[7], resolution = op[8], refused = op[9], age = op[10], flight = op[11],
        n = op[12], epoch = op[13], sent = op[14], used = op[15], most = op[16]})
    end
  elseif what == 'x' then
    local a = announced['a:' .. op[2]]
    if a then a.closed, a.dirty = max(a.closed, now + op[3]), true end
  elseif what == 'p' then
    local till = now + op[2]
    if op[3] == 1 then
      if till > whole then
        whole, wdoubt = till, op[4] == 1
        setO.pu, setO.pd = int(till), op[4]
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

-- Requests in flight, by client: its latest message's number, how many it
-- has, until when they count although nothing is heard of it.
local function slots(s, held, seq, asked)
  local list = {mine = nil, others = 0, waitable = now + 1000000}
  for id, n, h, till in string.gmatch(s or '', '(%S+) (%d+) (%d+) (%d+);') do
    local r = {id = id, seq = tonumber(n), held = tonumber(h), till = tonumber(till)}
    if r.till > now then
      list[#list + 1] = r
      if id == q.c then list.mine = r else
        list.others = list.others + r.held
        list.waitable = min(list.waitable, r.till)
      end
    end
  end
  if held == nil then return list end
  if not list.mine then
    if held == 0 and asked == 0 then return list end
    list.mine = {id = q.c, seq = -1, held = 0}
    list[#list + 1] = list.mine
  end
  local r = list.mine
  list.fresh = seq > r.seq -- else a later message has arrived already, and counted this one in
  if list.fresh then
    if held - asked < r.held then list.freed = true end
    r.seq, r.held, list.dirty = seq, held - asked, true
  end
  r.till = now + q.lease
  list.dirty = true
  return list
end

local function written(list)
  local s = {}
  for _, r in ipairs(list) do
    if r.seq >= 0 then s[#s + 1] = r.id .. ' ' .. int(r.seq) .. ' ' .. int(r.held) .. ' ' .. int(r.till) .. ';' end
  end
  return table.concat(s)
end

local asking = q['do'] == 'ask'
local asked = asking and (q.conc or 0) or 0
local here, there = slots(p.s, q.sp, q.seq, asked), slots(o.s, q.so, q.seq, asking and 1 or 0)
if here.freed or there.freed then
  news = true
  if there.freed and q.mp then setO.e = int(now) end
end

---------------------------------------------------------------- judging

-- A token bucket: how many tokens, and when there were.
local buckets = {}
for _, lim in ipairs(q.lim or {}) do
  if lim[5] > 0 then
    local field = 'b:' .. lim[1]
    local tokens, at = string.match(p[field] or '', '^(%S+) (%S+)$')
    local b = {field = field, tokens = lim[5], rate = lim[3] / lim[4], most = lim[5], u = lim[2]}
    if tokens then b.tokens = min(lim[5], tonumber(tokens) + (now - tonumber(at)) * b.rate) end
    if returned[b.u] ~= 0 then b.tokens, b.dirty = min(b.most, b.tokens + returned[b.u]), true end
    buckets[#buckets + 1] = b
  end
end

local status, n0, n1, m0, m1, x0, x1 = 0, 0, 0, 0, 0, 0, 0
local wait, cause, policy, least = 0, '', '', -1
local judged = q['do'] == 'ask' or q['do'] == 'check'
local waiting = 0

if judged then
  local fits, at = 1000000000, now
  local gates = {} -- functions that say when j requests like this one may go

  local function hold(till, why, name)
    if till > now then
      fits = 0
      if till > at then at, cause, policy = till, why, name or '' end
    end
  end
  local function left(n)
    if least < 0 or n < least then least = max(n, 0) end
  end

  if whole > now and not wdoubt then hold(whole, 'pause') end
  if pause > now and not doubt then hold(pause, 'pause') end
  if o.h then hold(tonumber(o.h), 'ledger') end
  if q.iv and o.l then hold(tonumber(o.l) + q.iv, 'interval') end
  if q.mp and (there.others > 0 or there.mine and there.mine.held > 0) then
    hold(now + 250000, 'interval')
  elseif q.mp and (setO.e or o.e) then
    hold(tonumber(setO.e or o.e) + q.mp, 'interval')
  end
  if q.iv or q.mp then fits = min(fits, 1) end

  local function cap(list, quota, cost, name)
    local held = list.others + (list.mine and list.mine.held or 0)
    if list.mine and list.fresh == false then held = held - cost end
    left(quota - held)
    if held + cost > quota then
      hold(min(now + 250000, max(list.waitable, now + 1000)), 'concurrency', name)
    end
    fits = min(fits, 1)
  end
  if q.mc then cap(there, q.mc, 1) end

  local function gate(room, cost, when, name)
    if cost <= 0 then return end
    local k = floor(room / cost)
    fits = min(fits, max(k, 0))
    gates[#gates + 1] = {cost = cost, when = when, name = name}
  end

  for _, lim in ipairs(q.lim or {}) do
    local name = string.match(lim[1], '^[^\n]*')
    if lim[2] == 'c' then
      cap(here, lim[3], q.conc, name)
    elseif lim[5] == 0 then
      local l = logs['w:' .. lim[1]]
      local cost = min(l.u == 'b' and q.bytes or q.req, l.q)
      local room = l.q - l.used
      if l.u == 'r' then left(room) end
      gate(room, cost, function(n) return awaited(l, n - room) or now + l.w end, name)
    end
  end
  for _, b in ipairs(buckets) do
    local cost = min(b.u == 'b' and q.bytes or q.req, b.most)
    if b.u == 'r' then left(floor(b.tokens)) end
    gate(b.tokens, cost, function(n) return now + ceil((n - b.tokens) / b.rate) end, string.match(string.sub(b.field, 3), '^[^\n]*'))
  end

  for _, field in ipairs(order) do
    local a = announced[field]
    local l, name = a.log, string.match(string.sub(field, 3), '^[^\n]*')
    turn(a)
    if l.u == 'c' then
      if l.q > 0 then cap(here, l.q, q.conc, name) end
    elseif l.u == 'r' or l.u == 'b' then
      local cost = l.u == 'b' and q.bytes or q.req
      if l.q > 0 then cost = min(cost, l.q) end
      if cost > 0 then hold(a.closed, 'policy', name) end
      if slides(a) then
        local room = l.q - l.used - a.foreign
        if room < cost and l.used == 0 then room = cost end -- others hold it all: see what the origin says
        if l.u == 'r' then left(room) end
        -- While more want to go, the last unit stays: its answer would say that
        -- nothing is left, and until when in whole seconds, for which all would
        -- have to stop. One unit a window is the lesser loss where windows are short.
        local spare = 0
        if a.resolution > 0 and l.q * a.resolution >= 10 * l.w then
          local pressed = q.need > 1 or between(l, now - a.resolution, now + l.w) >= max(5, l.q / 20)
          for _, c in ipairs(clients) do pressed = pressed or c ~= me and c.first > 0 end
          if pressed then spare = 1 end
        end
        gate(room - spare, cost, function(n) return awaited(l, n - room + spare) or now + min(l.w, 1000000) end, name)
      elseif a.stated == 1 or l.q > 0 then
        local room = a.stated == 1 and a.left or l.q - a.in_epoch
        if l.u == 'r' then left(room) end
        local till = max(a.closed, a.opens)
        if till == 0 and between(l, now - 10000000, now + l.w) == 0 then room = max(room, cost) end -- said long ago: ask the origin
        gate(room, cost, function() return till > now and till or now + 250000 end, name)
      end
    end
  end

  -- What fits is shared out such that what each was granted of late comes out
  -- even, as far as each wants it: before this client is granted k requests,
  -- those that wait and were granted less are to have as much as it would then
  -- have had, and the others as much as it would have had but for the last one.
  local unit = max(q.req, 1)
  local tau
  for _, l in pairs(logs) do
    if l.w > 0 and l.q > 0 and (not tau or l.w < tau) then tau = l.w end
  end
  local rivals, before = {}, me.want > 0
  for _, c in ipairs(clients) do
    c.recent = c.got * math.exp((c.at - now) / (tau or 1000000))
    if c == me then
      before = false
    elseif c.want > 0 then
      c.before = before or me.want == 0
      rivals[#rivals + 1] = c
    end
  end
  for _, c in ipairs(rivals) do
    if c.first > 0 then waiting = waiting + 1 end
  end
  local function others(k)
    local n = 0
    for _, c in ipairs(rivals) do
      local level = me.recent + k * unit - c.recent
      local first = c.recent < me.recent or c.recent == me.recent and c.before
      if not first then level = level - unit end
      if first or level > 0.001 then n = n + max(min(c.want, ceil(level - 0.001)), c.first) end
    end
    return n
  end
  local avail, ahead = fits, 0
  if #rivals > 0 and q.req > 0 then
    ahead = others(1)
    local low, high = 0, min(fits, q.need)
    while low < high do
      local k = ceil((low + high) / 2)
      if k * unit + others(k) <= fits * unit then low = k else high = k - 1 end
    end
    avail = low
  end

  if avail >= 1 then
    status = 1
    n0 = min(q.need, avail)
    if waiting == 0 and q.extra > 0 then
      local alive = 0
      for _, c in ipairs(clients) do
        if now - c.seen < 10000000 then alive = alive + 1 end
      end
      n1 = max(0, min(q.extra, floor((fits - n0) / (2 * alive))))
    end
  end

  if status == 0 then
    local n = ceil(ahead / unit) + 1
    for _, g in ipairs(gates) do
      local when = g.when(n * g.cost)
      if when > at then at, cause, policy = when, 'policy', g.name end
    end
    if fits > 0 then -- others come first; if they do not come, their turn passes
      for _, c in ipairs(rivals) do at = min(at, max(c.till, now)) end
      if cause == '' then cause = 'queue' end
    end
    wait = max(at - now, 1000)
  end

  -- For how long a turn is kept once it has come: its process may be busy.
  local grace = min(max(50000, floor((tau or 0) / 20)), 250000)
  -- What it wants is taken to be what waits and, as often as this, what waits
  -- for its answers to go on: all that a turn brings may come at one instant.
  local rounds = 4
  local wants = (q.want + (q.more or 0)) * unit
  local function enqueue(want, till, last)
    if last or me.want == 0 then
      for i, c in ipairs(clients) do
        if c == me then
          table.remove(clients, i)
          break
        end
      end
      clients[#clients + 1] = me
    end
    me.want, me.first, me.till, remember = want, want > 0 and unit or 0, till, true
  end

  if asking then
    if status == 1 then
      x0 = now + q.rtt + q.lat -- when those that go at once are answered, as far as one can tell
      x1 = x0 + q.hold         -- … and those that are kept in hand
      m0 = min(n0, q.imm)
      m1 = n0 + n1 - m0
      if unknown and #order == 0 and not logs[unknown] then
        logs[unknown] = {i = {}, n = {}, k = 0, used = 0, w = memory, q = 0, u = 'r', g = grain(memory, 0)}
      end
      for field, l in pairs(logs) do
        local cost = l.u == 'b' and q.bytes or l.u == 'r' and q.req or 0
        if l.q > 0 then cost = min(cost, l.q) end
        local a = announced[field]
        if cost > 0 then
          add(l, x0, m0 * cost)
          add(l, x1, m1 * cost)
          if a then
            local n = (n0 + n1) * cost
            a.left, a.in_epoch, a.sent, a.dirty = a.left - n, a.in_epoch + n, a.sent + n, true
          end
        end
      end
      for _, b in ipairs(buckets) do
        local cost = min(b.u == 'b' and q.bytes or q.req, b.most)
        b.tokens, b.dirty = b.tokens - (n0 + n1) * cost, true
      end
      if q.iv then setO.l = int(now + q.rtt) end
      if here.fresh then here.mine.held = here.mine.held + asked end
      if there.fresh then there.mine.held = there.mine.held + 1 end
      if least >= 0 then least = max(least - (n0 + n1) * q.req, 0) end
      me.got, me.at, remember = me.recent + (n0 + n1) * q.req, now, true
      -- It waits again, behind the others; and who has had to wait once is
      -- likely to want as much again once it is answered.
      local waits = n0 < q.want
      if waits or me.want > 0 then
        enqueue((waits or me.first > 0) and rounds * wants or wants, now + grace, true)
        if not waits then me.first = 0 end
      end
    elseif q.queue == 1 then
      enqueue(rounds * wants, now + wait + grace)
    elseif me.want > 0 then
      enqueue(0, 0)
    end
  end
end

---------------------------------------------------------------- writing back

if q['do'] ~= 'check' then
  local set, del = {}, {}
  for field, l in pairs(logs) do
    local a = announced[field]
    if a then
      if answers and not current[field] and now - a.said > max(a.log.w, 1000000) and now >= max(a.closed, a.opens) then
        del[#del + 1] = field -- no longer announced
      else
        expires = max(expires, a.closed, a.opens, a.said + a.log.w)
        if a.dirty or l.dirty then
          local head = {}
          for i, c in ipairs(columns) do head[i] = int(a[c]) end
          set[#set + 1] = field
          set[#set + 1] = table.concat(head, ' ') .. '|' .. write(l)
        end
      end
    elseif l.k == 0 or field == 'u' and #order > 0 then
      if p[field] then del[#del + 1] = field end
    elseif l.dirty then
      set[#set + 1] = field
      set[#set + 1] = write(l)
    end
    if l.k > 0 and field ~= 'u' then expires = max(expires, l.i[l.k] * l.g + l.w) end
  end
  for _, b in ipairs(buckets) do
    if b.dirty then
      set[#set + 1] = b.field
      set[#set + 1] = string.format('%.6f', b.tokens) .. ' ' .. int(now)
    end
    expires = max(expires, now + (b.most - b.tokens) / b.rate)
  end
  if here.dirty then setp('s', written(here)) end
  if remember then
    local s = {}
    local function ms(x) return int(max(ceil((x - birth) / 1000), 0)) end
    for i, c in ipairs(clients) do
      s[i] = table.concat({c.id, ms(c.seen), int(c.want), int(c.first), ms(c.till), int(c.batch), int(c.got), ms(c.at)}, ' ') .. ';'
    end
    setp('k', table.concat(s))
  end
  for field in pairs(dirty) do
    set[#set + 1] = field
    set[#set + 1] = p[field]
  end
  for _, list in ipairs({here, there}) do
    for _, r in ipairs(list) do
      if r.held > 0 then expires = max(expires, r.till) end
    end
  end
  expires = max(expires, pause)
  if stale then redis.call('DEL', P) end
  if #set > 0 or p.g then
    if p.g == nil then
      set[#set + 1], set[#set + 2] = 'g', stamp
    end
    if #del > 0 then redis.call('HDEL', P, unpack(del)) end
    if #set > 0 then redis.call('HSET', P, unpack(set)) end
    redis.call('PEXPIREAT', P, ceil(expires / 1000) + 1000)
  end

  if there.dirty then setO.s = written(there) end
  if born then setO.g = o.g end
  local flat = {}
  for field, value in pairs(setO) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  if #flat > 0 then redis.call('HSET', O, unpack(flat)) end
  if q.iv and o.l then expires = max(expires, tonumber(o.l) + q.iv) end
  if q.iv and setO.l then expires = max(expires, tonumber(setO.l) + q.iv) end
  if q.mp and (setO.e or o.e) then expires = max(expires, tonumber(setO.e or o.e) + q.mp) end
  expires = max(expires, whole)
  -- The origin's key outlives its partitions': they are worth nothing without it.
  local left = ceil((expires - now) / 1000) + 2000
  if redis.call('PTTL', O) < left then redis.call('PEXPIRE', O, left) end

  if news then
    local some = there.freed
    for _, c in ipairs(clients) do some = some or c ~= me and c.first > 0 end
    if some then publish({k = 'ask', p = not there.freed and q.p or nil}) end
  end
end

local list = {}
for _, field in ipairs(order) do
  local a = announced[field]
  list[#list + 1] = {string.sub(field, 3), a.log.u, a.log.q, slides(a) and a.log.w or 0, a.epoch, a.sent, a.log.used}
end
local alive = #clients
return {status, o.g, resets, int(now), m0, int(x0), m1, int(x1), wait, cause, policy, least, alive, waiting,
  pause > now and pause - now or 0, doubt and 1 or 0, whole > now and whole - now or 0, (manual and 1 or 0) + (wdoubt and 2 or 0), list}

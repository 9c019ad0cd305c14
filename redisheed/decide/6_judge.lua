-- The judgement of all limits at one instant.

-- A token bucket: how many tokens, and when there were.
local buckets = {}
local function bucket(field, unit, w, quota, burst)
  local b = {field = field, tokens = burst, rate = quota / w, most = burst, u = unit}
  local tokens, at = string.match(p[field] or '', '^(%S+) (%S+)$')
  if not tokens then -- it may take the place of another one
    for f, value in pairs(p) do
      local t, since = string.match(value, '^(%S+) (%S+)$')
      if t and kin(f) == kin(field) and (terms(f) or unit) == unit and (not at or tonumber(since) > tonumber(at)) then tokens, at = t, since end
    end
    b.dirty = tokens ~= nil
  end
  if tokens then b.tokens = min(burst, tonumber(tokens) + (now - tonumber(at)) * b.rate) end
  if returned[unit] ~= 0 then b.tokens, b.dirty = min(burst, b.tokens + returned[unit]), true end
  buckets[#buckets + 1] = b
end
for _, lim in ipairs(q.lim or {}) do
  if lim[5] > 0 then bucket('b:' .. lim[1], lim[2], lim[4], lim[3], lim[5]) end
end
local ours = #buckets -- the others are those that other processes have
for field in pairs(p) do
  local unit, w, quota, burst = terms(field)
  if burst and not named[field] and not dropped[field] then bucket(field, unit, w, quota, burst) end
end

-- A server's pause holds this process for no longer than its limits allow, a user's always.
local stands, rests, user = pause, whole, tonumber(o.pl) or 0
if q.most then
  if pause > 0 and not doubt then stands = min(pause, tonumber(p.ps) + q.most) end
  local till, since = string.match(setO.ps or o.ps or '', '^(%d+) (%d+)$')
  if not manual and not wdoubt and tonumber(till) == whole then rests = min(whole, max(tonumber(since) + q.most, user)) end
  manual = manual or rests == user
end

local status, n0, n1, m0, m1, x0, x1 = 0, 0, 0, 0, 0, 0, 0
local wait, cause, policy, least = 0, '', '', -1
local judged = (q['do'] == 'ask' or q['do'] == 'check') and not overtaken
local waiting = 0
local shut, passed = false, false -- what holds all of the origin holds this one; who was to go first goes not

if judged then
  local fits, at = 1000000000, now
  local probed = {} -- announced policies that one request goes to see
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

  if rests > now and not wdoubt then hold(rests, 'pause') end
  if stands > now and not doubt then hold(stands, 'pause') end
  if o.h then hold(tonumber(o.h), 'ledger') end
  if p.h then hold(tonumber(p.h), 'ledger') end

  local function held(list, cost)
    local n = list.others + (list.mine and list.mine.held or 0)
    if list.mine and list.fresh == false and not list.twice then n = n - cost end
    return n
  end
  -- When to ask again for a slot, unless one is free before.
  local function slot(list) return min(now + 250000, max(list.waitable, now + 1000)) end
  local function cap(list, quota, cost, name)
    local n = held(list, cost)
    left(quota - n)
    if n + cost > quota then hold(slot(list), 'concurrency', name) end
    fits = min(fits, 1)
  end

  -- What holds all of the origin's requests, and how many of them may go.
  local free, till, why = 1000000000, now, ''
  local function holdAll(when, what)
    if when > now then
      free = 0
      if when > till then till, why = when, what end
    end
  end
  if q.mc then
    free = q.mc - held(there, 1)
    if free < 1 then holdAll(slot(there), 'concurrency') end
  end
  if q.iv and o.l then holdAll(tonumber(o.l) + q.iv, 'interval') end
  if q.mp and held(there, 1) > 0 then
    holdAll(now + max(q.mp, keep), 'interval')
  elseif q.mp and (setO.e or o.e) then
    holdAll(tonumber(setO.e or o.e) + q.mp, 'interval')
  end
  local common = q.iv or q.mp or q.mc
  if q.iv or q.mp then free = min(free, 1) end
  local open = free > 0
  -- Other processes may have waited for longer. Their turns pass if they do not come.
  local earlier = (line.mine or #line + 1) - 1
  if common and open and earlier >= free then
    local passes, each = now + 1000000, max(q.iv or 0, q.mp or 0)
    for i = 1, earlier do passes = min(passes, line[i].till) end
    if each > 0 then passes = min(passes, now + earlier * each) end
    holdAll(max(passes, now + 1000), each > 0 and 'interval' or 'concurrency')
  end
  if common then free = min(free, 1) end

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
  for i = 1, ours do
    local b = buckets[i]
    local cost = min(b.u == 'b' and q.bytes or q.req, b.most)
    if b.u == 'r' then left(floor(b.tokens)) end
    gate(b.tokens, cost, function(n) return now + ceil((n - b.tokens) / b.rate) end, string.match(string.sub(b.field, 3), '^[^\n]*'))
  end

  for _, field in ipairs(q.deaf and {} or order) do
    local a = announced[field]
    local l, name = a.log, string.match(string.sub(field, 3), '^[^\n]*')
    turn(a)
    if l.u == 'c' then
      if l.q > 0 then cap(here, l.q, q.conc, name) end
    elseif l.u == 'r' or l.u == 'b' then
      local cost = l.u == 'b' and q.bytes or q.req
      if l.q > 0 then cost = min(cost, l.q) end
      local most = q.most and a.said + q.most or a.closed
      if cost > 0 then hold(min(a.closed, most), 'policy', name) end
      if most < a.closed then -- it is closed for longer than is waited for
        if cost > 0 then
          fits = min(fits, 1)
          probed[#probed + 1] = a
        end
        if l.u == 'r' then left(0) end
      elseif slides(a) then
        local room = l.q - l.used - a.foreign
        if room < cost and l.used == 0 then room = cost end -- others hold it all: see what the origin says
        if l.u == 'r' then left(room) end
        -- While more want to go, the last unit stays: its answer would say that
        -- nothing is left, and until when in whole seconds, for which all would
        -- have to stop. One unit a window is the lesser loss where windows are short.
        -- Not where it is all there is until an answer says more: none of ours to come
        -- back, or a stop is over and one goes to see (turn).
        local pressed = q.need > 1 or between(l, now - a.resolution, now + l.w) >= max(5, l.q / 20)
        for _, c in ipairs(clients) do pressed = pressed or c ~= me and c.first > 0 end
        local short = a.resolution > 0 and l.q * a.resolution >= 10 * l.w
        local spare = pressed and short and l.used > 0 and a.said >= a.last and 1 or 0
        -- Once others are seen to use it too, what they leave is spread evenly over the window where
        -- more is wanted: who took it as soon as it is there would only ever see others use the
        -- rest. A fiftieth of the quota is nothing to make way for. How many bytes are ours is an
        -- estimate until a body is over, and what others use is not to be told from its error.
        local ours = (l.q - a.theirs) * min(q.vel or 0, 1)
        if l.u == 'r' and (pressed or q.want > 1) and a.theirs * 50 > l.q and ours > 0 then
          local span = max(ceil(l.w / 10), ceil(l.w * cost / ours))
          local lead = q.rtt + q.lat -- units are booked at the instant by which they are answered
          local spread = ours * span / l.w - between(l, now + lead - span, now + lead + l.w)
          gate(spread, cost, function(n) return leaves(l, now + lead - span, n - spread) + span - lead end, name)
        end
        gate(room - spare, cost, function(n)
          local at = awaited(l, n - room + spare) or now + min(l.w, 1000000)
          if a.closed > now then at = min(at, max(a.closed, awaited(l, n - l.q + l.used) or 0)) end -- see turn
          return at
        end, name)
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

  shut = avail >= 1 and free < 1
  if avail >= 1 and not shut then
    status = 1
    n0 = min(q.need, avail, free)
    if waiting == 0 and q.extra > 0 and not common then
      local alive = 0
      for _, c in ipairs(clients) do
        if now - c.seen < 10000000 then alive = alive + 1 end
      end
      n1 = max(0, min(q.extra, floor((fits - n0) / (2 * alive))))
    end
  end

  if status == 0 and not shut then
    local n = ceil(ahead / unit) + 1
    for _, g in ipairs(gates) do
      local when = g.when(n * g.cost)
      if ahead > 0 and when > now + gone then when = min(when, max(g.when(g.cost), now + gone)) end -- those ahead may have gone by then
      if when > at then at, cause, policy = when, 'policy', g.name end
    end
    if fits > 0 then -- others come first; if they do not come, their turn passes
      for _, c in ipairs(rivals) do at = min(at, max(c.till, now)) end
      if cause == '' then cause = 'queue' end
    end
  end
  if status == 0 then
    if till > at then at, cause, policy = till, why, '' end
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

  if again then -- the same answer once more, with what is left now
    status, m0, x0, m1, x1, wait, cause, policy = 1, again.m0, again.x0, again.m1, again.x1, 0, '', ''
  elseif asking then
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
        b.tokens, b.dirty = max(b.tokens - (n0 + n1) * cost, min(b.tokens, 0)), true -- one that did not bind it owes nothing
      end
      for _, a in ipairs(probed) do a.said, a.dirty = now, true end -- the next one goes to see no sooner
      if q.iv then setO.l = int(now + q.rtt) end
      if here.fresh or here.twice then here.mine.held = here.mine.held + asked end
      if there.fresh or there.twice then there.mine.held = there.mine.held + 1 end
      if least >= 0 then least = max(least - (n0 + n1) * q.req, 0) end
      me.got, me.at, remember = me.recent + (n0 + n1) * q.req, now, true
      if q.n then me.took = table.concat({'', int(m0), int(x0), int(m1), int(x1), int(q.req), int(q.bytes)}, ' ') end
      -- It waits again, behind the others; and who has had to wait once is
      -- likely to want as much again once it is answered.
      local waits = n0 < q.want
      if waits or me.want > 0 then
        enqueue((waits or me.first > 0) and rounds * wants or wants, now + grace, true)
        if not waits then me.first = 0 end
      end
    elseif shut then -- it waits in the origin's line, and nobody here for it
    elseif q.queue == 1 then
      enqueue(rounds * wants, now + wait + grace)
    elseif me.want > 0 then
      enqueue(0, 0)
    end
    if shut and q.queue == 1 then
      if not line.mine then
        line[#line + 1] = {id = q.c}
        line.mine = #line
      end
      line[line.mine].till, line.dirty = now + wait + keep, true
    elseif line.mine then
      passed = status == 0 and open and #line > 1
      table.remove(line, line.mine)
      line.mine, line.dirty = nil, true
    end
  end
end

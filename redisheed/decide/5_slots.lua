-- Requests in flight, by client: its latest message's number, how many it
-- has, until when they count although nothing is heard of it. Who found Redis away
-- takes it that others did too, and could not be heard of: they are given time to be.
local lapse = 60000000 -- for how long those that ceased to count are known
local function slots(s, held, seq, asked)
  local list = {mine = nil, others = 0, waitable = now + 1000000, lapsed = {}}
  for id, n, h, till in string.gmatch(s or '', '(%S+) (%d+) (%d+) (%d+);') do
    local r = {id = id, seq = tonumber(n), held = tonumber(h), till = tonumber(till)}
    if r.till <= now and r.till + (q.away or 0) > now and id ~= q.c then r.till, list.dirty = now + q.grace, true end
    if r.till <= now and r.till + lapse > now and r.held > 0 and id ~= q.c then list.lapsed[#list.lapsed + 1] = r end
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
  list.twice = seq == r.seq -- the same question once more, for its answer was lost
  list.fresh = seq > r.seq -- else a later message has arrived already, and counted this one in, or this one has
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
  local function put(r)
    if r.seq >= 0 then s[#s + 1] = r.id .. ' ' .. int(r.seq) .. ' ' .. int(r.held) .. ' ' .. int(r.till) .. ';' end
  end
  for _, r in ipairs(list) do put(r) end
  for _, r in ipairs(list.lapsed) do put(r) end
  return table.concat(s)
end

local asking = q['do'] == 'ask'
local asked = asking and (q.conc or 0) or 0
local here, there = slots(p.s, q.sp, q.seq, asked), slots(o.s, q.so, q.seq, asking and 1 or 0)
if here.freed or there.freed then
  news = true
  if there.freed and q.mp then setO.e = int(now) end
end

-- Processes that wait for what holds all of the origin, first come first served: whose turn it is, and
-- until when it is kept. Once a slot is free all are told, and those that are still there ask at once.
local keep = 50000
local line = {mine = nil, dirty = false}
for id, till in string.gmatch(o.t or '', '(%S+) (%d+);') do
  local r = {id = id, till = tonumber(till)}
  if there.freed then r.till, line.dirty = min(r.till, now + (q.mp or 0) + keep), true end
  if r.till > now then
    line[#line + 1] = r
    if id == q.c then line.mine = #line end
  end
end

-- Who waits is told of what was given back (see 7_reply) and comes for it at once, if it is
-- still there: for as long its turn is kept, and not until what it was told to wait for.
if news then
  for _, c in ipairs(clients) do
    if c ~= me and c.till > now + 1000000 then c.till, remember = now + 1000000, true end
  end
end

-- Announced policies, and what answers say of them.

local logs = {}      -- by field of p
local announced = {} -- by field of p; in the order of their fields
local order = {}

-- An announced policy: numbers by these names, then its log.
local columns = {'window', 'foreign', 'closed', 'opens', 'resolution', 'epoch', 'stated', 'left', 'in_epoch', 'sent', 'last', 'said', 'blind', 'theirs', 'seen'}

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
    a.theirs, a.seen = a.theirs or 0, a.seen or 0
    announced[field] = a
    order[#order + 1] = field
    logs[field] = a.log
  end
end
for _, l in pairs(logs) do expire(l) end

-- kin is what policies have in common of which one may have taken the place of the other:
-- their kind, name and partition key.
local function kin(field) return string.match(field, '^(.*)\n%a %d') or field end

-- terms returns unit, window, quota and burst of a bucket's field, or unit and window of a log's.
local function terms(field)
  local unit, w, quota, burst = string.match(field, '\n(%a) (%d+) ?(%d*) ?(%d*)$')
  return unit, tonumber(w), tonumber(quota), tonumber(burst)
end

-- begin returns the log of a policy that has none. Who changes a policy does not forget what was used.
local function begin(field, unit, quota, w)
  local l = {i = {}, n = {}, k = 0, used = 0, w = w, q = quota, u = unit, g = grain(w, quota)}
  local was
  for f, x in pairs(logs) do
    if x.u == unit and kin(f) == kin(field) and (not was or x.w > was.w) then was = x end
  end
  for j = 1, was and was.k or 0 do
    local at = was.i[j] * was.g
    add(l, min(at, max(now, at - was.g)), was.n[j]) -- what was used already was so by now
  end
  return l
end

local named = {} -- policies of this process
for _, lim in ipairs(q.lim or {}) do
  if lim[2] ~= 'c' then
    local field = (lim[5] == 0 and 'w:' or 'b:') .. lim[1]
    named[field] = true
    if lim[5] == 0 then
      logs[field] = logs[field] or begin(field, lim[2], lim[3], lim[4])
      fit(logs[field], lim[4], lim[3])
    end
  end
end

-- Processes need not have the same policies, and may get others at any time. All that is granted
-- is counted for each, whoever asks, until nobody has asked about it for so long that what it
-- knew then is of no use: c has since when, in seconds since the origin's birth.
local unasked, seconds = p.c and cjson.decode(p.c) or {}, floor((now - tonumber(o.g)) / 1000000)
local dropped, turned = {}, false
for field in pairs(p) do
  local _, w, quota, burst = terms(field)
  if w and not named[field] then
    if not unasked[field] then
      if q['do'] == 'ask' then unasked[field], turned = seconds, true end
    elseif seconds - unasked[field] > 60 + w * (burst and burst / quota or 1) / 1000000 then
      logs[field], dropped[field] = nil, true
    end
  end
end
for field in pairs(unasked) do
  if named[field] or dropped[field] or not p[field] then unasked[field], turned = nil, true end
end
if turned and next(unasked) then p.c, dirty.c = cjson.encode(unasked), true else dropped.c = turned end

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

-- turn begins a new epoch where the present one is over. What others use of
-- a sliding window nobody knows any more once it is said to have more: one
-- request goes to see.
local function turn(a)
  local till = max(a.closed, a.opens)
  if till == 0 or now < till then return end
  if not slides(a) then
    a.epoch, a.stated, a.left, a.in_epoch = a.epoch + 1, 0, 0, 0
  elseif a.closed > 0 then
    local l = a.log
    local cost = min(max(l.u == 'b' and q.bytes or q.req, 1), l.q)
    a.foreign = min(a.foreign, max(l.q - l.used - cost, 0))
  end
  a.last, a.closed, a.opens, a.dirty = till, 0, 0, true
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
      -- Of our units, what r can have counted: all, save those booked for so late that they were sent
      -- after the answer (see fillAsk: a hundredth of the window late, and a fortieth in hand).
      local most = s.sent < 0 and l.used or s.used + a.sent - s.sent
      most = most - between(l, at + margin + floor(l.w / 100) + floor(l.w / 40), now + l.w)
      local others = max(l.q - most - r, 0)
      local least = between(l, at + s.flight - l.w, start - margin) + s.n -- what it has, if the window slides
      a.foreign = max(others, min(a.foreign - floor(a.foreign / 8) - 1, l.q - least - r), 0)
      -- They are taken to want again what they had: a window that has just begun shows none of it.
      if others >= a.theirs or at >= a.seen + l.w then a.theirs, a.seen = others, at end
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

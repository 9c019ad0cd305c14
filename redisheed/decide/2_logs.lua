-- Logs of the units in use.

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

-- leaves returns the last use of the first n units after an instant.
local function leaves(l, from, n)
  local at = from
  for j = 1, l.k do
    if l.i[j] * l.g > from and n > 0 then at, n = l.i[j] * l.g, n - l.n[j] end
  end
  return at
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

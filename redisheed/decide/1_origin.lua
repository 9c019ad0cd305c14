-- Everything that redisheed asks of Redis, in one script: what happened since
-- the last question, the judgement of all limits of one partition at one
-- instant, and what is taken. The files of this folder, one after the other,
-- are that script. docs/redis.md describes the keys, the question and the
-- reply. Instants and spans of time are in microseconds.
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
  redis.call('HDEL', O, 'pu', 'pm', 'pd', 'pl', 'ps', 'pv', 'l', 'e', 'h', 't')
  if redis.call('PTTL', O) < 60000 then redis.call('PEXPIRE', O, 60000) end
  publish({k = 'reset', r = resets + 1})
  return {0, o.g, resets + 1}
end
if q['do'] == 'pause' then
  if q.d > 0 then
    local whole = tonumber(o.pu) or 0 -- a longer one stays whoever's it was
    local till = max(whole, now + q.d)
    local user = max(tonumber(o.pl) or 0, now + q.d)
    redis.call('HSET', O, 'g', o.g, 'pu', int(till), 'pm', till > whole and 1 or o.pm or 0, 'pd', 0, 'pl', int(user))
    local left = ceil((till - now) / 1000) + 1000
    if redis.call('PTTL', O) < left then redis.call('PEXPIRE', O, left) end
    publish({k = 'pause', d = q.d, m = 1})
  else
    redis.call('HSET', O, 'g', o.g, 'pv', int(now)) -- pauses set before are void
    redis.call('HDEL', O, 'pu', 'pm', 'pd', 'pl', 'ps')
    if redis.call('PTTL', O) < 60000 then redis.call('PEXPIRE', O, 60000) end
    publish({k = 'pause', d = -1, m = 1})
  end
  return {0, o.g, resets}
end

local stamp = o.g .. '.' .. int(resets)
local p = load(P)
local stale = p.g ~= nil and p.g ~= stamp
-- A partition's key may go while its origin's stays, where Redis has no room for it; a
-- reset makes its book void, and no other one of it.
local begun = p.b or '0'
if p.g == nil or stale and string.match(p.g, '^%d+') ~= o.g then begun = int(now) end

-- Who has used units and finds that Redis knows nothing of them, or of the origin, is to
-- tell first. Until all had time to, nothing is granted.
local all = q.g ~= o.g
if q.hist == 1 and (all or q.pg and q.pg ~= begun) then
  local key, birth, held = P, begun, not stale and p.h
  if all then key, birth, held = O, o.g, o.h end
  if stale then redis.call('DEL', P) end
  redis.call('HSET', O, 'g', o.g)
  redis.call('HSET', P, 'g', stamp, 'b', begun)
  if not held and now - tonumber(birth) < q.grace then
    redis.call('HSET', key, 'h', int(now + q.grace))
    publish({k = 'lost', p = not all and q.p or nil})
  end
  if redis.call('PTTL', P) < 60000 then redis.call('PEXPIRE', P, 60000) end
  if redis.call('PTTL', O) < 62000 then redis.call('PEXPIRE', O, 62000) end
  return {2, o.g, resets, int(now), begun}
end

-- What others may have used of what Redis has not known they are to tell: it
-- may have been emptied.
if born then publish({k = 'lost'}) elseif p.g == nil then publish({k = 'lost', p = q.p}) end

if stale then p = {} end
local dirty = {} -- fields of p to write
local news = false -- something was given back
local expires = now

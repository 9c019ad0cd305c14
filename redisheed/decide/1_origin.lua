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

-- Writing back what has changed, and the reply.

if q['do'] ~= 'check' then
  local set, del = {}, {}
  -- related reports whether a log has kin: where it is empty it must not begin with what these
  -- remember, which is rounded to other grains.
  local function related(field, l)
    for f, x in pairs(logs) do
      if x ~= l and x.u == l.u and kin(f) == kin(field) then return true end
    end
  end
  for field, is in pairs(dropped) do
    if is and p[field] then del[#del + 1] = field end
  end
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
    elseif l.k == 0 and not related(field, l) or field == 'u' and #order > 0 then
      if p[field] then del[#del + 1] = field end
    elseif l.dirty or not p[field] then
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
      s[i] = table.concat({c.id, ms(c.seen), int(c.want), int(c.first), ms(c.till), int(c.batch), int(c.got), ms(c.at), int(c.n) .. c.took}, ' ') .. ';'
    end
    setp('k', table.concat(s))
  end
  for field in pairs(dirty) do
    set[#set + 1] = field
    set[#set + 1] = p[field]
  end
  for _, list in ipairs({here, there}) do
    for _, r in ipairs(list) do
      if r.held > 0 then expires = max(expires, r.till + lapse) end
    end
  end
  expires = max(expires, pause)
  if stale then redis.call('DEL', P) end
  if #set > 0 or p.g then
    if p.g == nil then
      for _, v in ipairs({'g', stamp, 'b', begun}) do set[#set + 1] = v end
    end
    if #del > 0 then redis.call('HDEL', P, unpack(del)) end
    if #set > 0 then redis.call('HSET', P, unpack(set)) end
    redis.call('PEXPIREAT', P, ceil(expires / 1000) + 1000)
  end

  if there.dirty then setO.s = written(there) end
  if line.dirty and #line > 0 then
    local s = {}
    for i, r in ipairs(line) do s[i] = r.id .. ' ' .. int(r.till) .. ';' end
    setO.t = table.concat(s)
  elseif line.dirty and o.t then
    redis.call('HDEL', O, 't')
  end
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

  if news or passed then
    local some = there.freed or passed
    for _, c in ipairs(clients) do some = some or c ~= me and c.first > 0 end
    if some then publish({k = 'ask', p = not (there.freed or passed) and q.p or nil}) end
  end
end

local list = {}
for _, field in ipairs(order) do
  local a = announced[field]
  list[#list + 1] = {string.sub(field, 3), a.log.u, a.log.q, slides(a) and a.log.w or 0, a.epoch, a.sent, a.log.used}
end
local alive = #clients
return {status, o.g, resets, int(now), m0, int(x0), m1, int(x1), wait, cause, policy, least, alive, waiting,
  stands > now and stands - now or 0, doubt and 1 or 0, rests > now and rests - now or 0, (manual and 1 or 0) + (wdoubt and 2 or 0) + (shut and 4 or 0), list, begun}

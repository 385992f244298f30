-- Shared by the scripts that read marks.

-- short reports by their HLEN whether the buyers are not what was written there: an evicted or deleted key, or a field that
-- somebody removed or added. Then a user without a mark may be one who bought. He could buy again, the release of his order
-- would find nothing to return, and he would be told that he holds nothing; so nobody is served by such a shard until a load
-- has written it anew. A count of both sides is all that this costs, however many marks there are.
local function short(length, meta) return failed(length) or length ~= meta.marks end

-- robbed reports whether outbox entries are gone that no script removed: an evicted or deleted key, or a field. Then an entry
-- that does not stand says nothing about its events: they may be in Kafka, or nowhere. entries is how many there must be, nil
-- where nobody knows. One count, and only for those whose entry does not stand.
local function robbed(pendingKey, entries)
  local length = redis.pcall('HLEN', pendingKey)
  return failed(length) or not entries or length < entries
end

-- readMark takes a mark apart, exactly as strictly as the callers of the scripts do: a mark that one side can read and the
-- other cannot would be its user's trouble for ever, because nobody would note that a load is due.
-- Returns order id, quantity, key hash and batch id as text, or nil for what is no mark.
local function readMark(mark)
  -- Where the hyphens of a UUID are costs less than a pattern of 32 digits, and so does int where it cannot matter.
  local id, a, b, c, d, quantity, at, hash, batch = string.match(mark,
    '^(%x+()%-%x+()%-%x+()%-%x+()%-%x+)\t(%d+)\t[^\t]*\t[^\t]*\t(%d+)\t([^\t]*)\t([^\t]*)$')
  if not id or a ~= 9 or b ~= 14 or c ~= 19 or d ~= 24 or #id ~= 36 then return nil end
  if quantity ~= '1' and (int(quantity) or 0) < 1 then return nil end
  if (#at > 15 or byte(at) == 48) and not int(at) then return nil end
  return id, quantity, hash, batch
end

-- note has `state` report the buyers from now on, so that a load becomes due; the load forgets it. Whoever comes upon a mark
-- that is none has to note it, because nothing else reads the marks one by one. A server that takes no writes now is told
-- the next time.
local function note(metaKey) redis.pcall('HSET', metaKey, 'bad', '1') end

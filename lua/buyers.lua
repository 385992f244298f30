-- buyers: the users who have a mark in a shard, and of which load the marks are, in one instant.
--
-- KEYS  1 stock  2 buyers  3 pending  4 meta
-- ARGV  1 k
-- Returns {'OK', epoch, users}, {'NOT_LOADED', 'stock'}, {'WRONG_LAYOUT', k} or {'CORRUPT', what}: what is no stock, and also where marks or
--       outbox entries are missing or a mark was found to be none, as state has it.
--       The refusal of a server that takes no writes: what it holds may be old.
-- Idempotent: changes nothing.

local names = {unpack(META)}
names[#names + 1] = 'bad'
local values = redis.pcall('HMGET', KEYS[4], unpack(names))
local code, what, meta = judge(redis.pcall('GET', KEYS[1]), values)
if code then return {code, what} end
if ARGV[1] ~= text(meta.k) then return {'WRONG_LAYOUT', text(meta.k)} end
local users = redis.pcall('HKEYS', KEYS[2])
if failed(users) or short(#users, meta) or values[#names] then return {'CORRUPT', 'buyers'} end
if robbed(KEYS[3], meta.entries) then return {'CORRUPT', 'pending'} end
local reply = {'OK', text(meta.epoch)}
for i = 1, #users do reply[i + 2] = users[i] end
return refuses(KEYS[4]) or reply

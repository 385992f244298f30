-- server: by which server a shard was loaded, and which one serves it now, in one instant.
--
-- KEYS  1 meta
-- ARGV  none
-- Returns {'OK', identity or '' where none is stored, identity or '' where none can be read} or {'CORRUPT', what}; the error of
--       a server that takes no writes: it is not the one whose say counts.
-- Idempotent: changes nothing. It needs no stock key.

local stored = redis.pcall('HGET', KEYS[1], 'server')
if failed(stored) then return {'CORRUPT', 'meta'} end
local current = identity()
return refuses(KEYS[1]) or {'OK', stored or '', current}

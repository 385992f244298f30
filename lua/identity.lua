-- Shared by load and server.

-- part reads one line of a section of INFO; '-' where the server has none, or does not let us ask.
local function part(section, name)
  local info = redis.pcall('INFO', section)
  return type(info) == 'string' and string.match(info, '[\r\n]' .. name .. ':(%x+)') or '-'
end

-- identity names the life of the server that runs this: its process, and the history that it had as a replica before it was
-- promoted, zeros if it never was. A restart changes the first, a promotion of the same process the second. The id of its
-- present history says less: it changes as well when a master gets its first replica, and nothing is lost by that. Empty where
-- neither can be read.
local function identity()
  local run, history = part('server', 'run_id'), part('replication', 'master_replid2')
  if run == '-' and history == '-' then return '' end
  return run .. ' ' .. history
end

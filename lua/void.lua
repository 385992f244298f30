-- void: removes the mark of an order whose units never existed. Nothing comes back.
--
-- KEYS  1 stock  2 buyers  3 meta
-- ARGV  1 k  2 epoch of the outbox row  3 user  4 order id
-- Returns as release; the number with OK is always 0.
-- Idempotent by order id.

return drop(false)

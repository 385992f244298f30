-- release: gives the units of an ended order back and removes its mark.
--
-- KEYS  1 stock  2 buyers  3 meta
-- ARGV  1 k  2 epoch of the outbox row  3 user  4 order id
-- Returns {code, value}: OK with the units that came back ('0': no mark names this order), ABSORBED (the row is older
--       than the shard: the load has counted it), NOT_LOADED, WRONG_LAYOUT, CORRUPT, BAD_CALL.
-- Idempotent by order id: the mark goes with the units.

return drop(true)

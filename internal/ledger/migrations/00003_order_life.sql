-- +goose Up

-- All of this is done at once, whatever is in the tables: no column makes the server write or read a row.

-- How many payments have to be paid back; a refund is due while it is above 0. refund_due says the same and stays for the binaries of the version
-- before.
ALTER TABLE flash_sale_order
    ADD COLUMN refunds_due   integer NOT NULL DEFAULT 0,
    ADD COLUMN paid_at       timestamptz,
    ADD COLUMN refunded_at   timestamptz, -- when somebody last said that what was due has been paid back
    ADD COLUMN anonymised_at timestamptz; -- since then user_id is a random one

-- When the end was last moved, by people: what is cleared away some time after the end waits for as long after that, too.
ALTER TABLE flash_sale ADD COLUMN end_moved_at timestamptz;

-- When orders of the item were first deleted. From then on an event without a row may be one of theirs that is read again.
ALTER TABLE flash_sale_item ADD COLUMN purged_at timestamptz;

-- +goose NO TRANSACTION
-- +goose Up

-- What reads every order. Each statement is a transaction of its own, and none of them keeps anybody from reading or writing orders while it reads;
-- one that was stopped half way leaves nothing that the next run does not clear away.

UPDATE flash_sale_order SET refunds_due = 1 WHERE refund_due AND refunds_due = 0;

ALTER TABLE flash_sale_order DROP CONSTRAINT IF EXISTS chk_order_refunds;
ALTER TABLE flash_sale_order ADD CONSTRAINT chk_order_refunds CHECK (refunds_due >= 0 AND refund_due = (refunds_due > 0)) NOT VALID;
ALTER TABLE flash_sale_order VALIDATE CONSTRAINT chk_order_refunds;

-- An index that is built beside the work waits for every transaction that began before it. Nobody waits behind it, so it may take its time.
SET lock_timeout = '5min';

-- Lists, newest first: of one item or of all, in one state or in any; and the walk of a purge. It is over expressions that no other statement uses:
-- as long as the planner takes the table for empty, an index on the plain columns seems as good as the primary key to every statement that
-- names an order, its state and its item, and a batch that looked up its orders there took seconds instead of milliseconds.
DROP INDEX CONCURRENTLY IF EXISTS ix_flash_sale_order_list;
CREATE INDEX CONCURRENTLY ix_flash_sale_order_list ON flash_sale_order ((item_id + 0), lower(status), reserved_at, id);

DROP INDEX CONCURRENTLY IF EXISTS ix_flash_sale_order_refund;
CREATE INDEX CONCURRENTLY ix_flash_sale_order_refund ON flash_sale_order (reserved_at, id) WHERE refunds_due > 0;

-- A user's live order is found by the index that allows one of them. Binaries of the version before, which look here, find it more slowly.
DROP INDEX CONCURRENTLY IF EXISTS ix_flash_sale_order_user;

RESET lock_timeout;
